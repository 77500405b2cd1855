//! Slides of every format, made by other programs, read here and by these programs.

mod common;

mod channels;
mod corpus;
mod dicom;
mod dicom_levels;
mod empty;
mod hostile;
mod hostile_dicom;
mod jpeg2000;
mod layouts;
mod levels;
mod links;
mod memory;
mod ome;
mod openslide;
mod pixels;
mod s3;
mod tls;
mod web;
mod zarr;
