//! Published ratios beside those of a result.

use serde::Deserialize;

use crate::claim::{Estimate, Evidence, PublishedComparison};
use crate::outcome::Table;
use crate::plot::{Bar, Chart, Figure};
use crate::words::words;

/// Published ratios: the `[comparison]` of an experiment's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RatioComparison {
    title: String,
    /// Where they are found, and in a word.
    source: String,
    by: String,
    #[serde(deserialize_with = "words")]
    note: String,
    ratios: Vec<PublishedRatio>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedRatio {
    what: String,
    published: f64,
    /// Title of the claim whose number is ours.
    claim: String,
}

impl RatioComparison {
    /// Bars in pairs: published, here. `of_claim` finds the number of a claim by its title.
    pub(crate) fn beside(
        &'static self,
        of_claim: impl Fn(&str) -> Evidence,
    ) -> PublishedComparison {
        let Self { title, source, by, note, ratios } = self;
        let (mut bars, mut rows) = (Vec::new(), Vec::new());
        for PublishedRatio { what, published, claim } in ratios {
            let bar = |who: &str, value, low, high| {
                let name = format!("{what}, {who}");
                Bar { name, value, low, high }
            };
            let ours = of_claim(claim);
            bars.push((6, bar(by, *published, *published, *published)));
            bars.extend(
                ours.as_ref().ok().map(|ours| (0, bar("here", ours.value, ours.low, ours.high))),
            );
            let ours = ours.as_ref().map_or_else(|why| why.clone(), Estimate::to_string);
            rows.push(vec![what.as_str().into(), (*published).into(), ours.into()]);
        }
        let figure = (bars.len() > ratios.len()).then(|| Figure {
            file: "published.svg".to_owned(),
            title: title.clone(),
            chart: Chart::Published { label: "ratio".to_owned(), bars },
        });
        let columns = ["what", by, "here"].map(str::to_owned).to_vec();
        let table = Table { title: title.clone(), note: note.clone(), columns, rows };
        PublishedComparison { source, figure, table }
    }
}
