//! The server as its clients see it: requests, pages in a browser, other servers beside it.

#[path = "../../../flow/launch/tests/cluster/mod.rs"]
mod cluster;
mod common;
#[path = "common/browser.rs"]
mod driver;
#[allow(dead_code, reason = "tests of the reader use the rest")]
#[path = "../../image/tests/common/nginx.rs"]
mod nginx;
#[path = "common/viewer.rs"]
mod viewer;

mod annotations;
mod browser;
mod channels;
mod dicomweb;
mod disk;
mod formats;
mod microscopy;
mod openslide;
mod pages;
mod pixels;
mod prefetch;
mod privacy;
mod remote;
mod requests;
mod sharing;
mod side_by_side;
mod signed;
mod slow;
mod tls;
mod updates;
mod validator;
mod workers;
