//! QIDO-RS (DICOM PS3.18, section 10.6): searches for studies, series and instances. Studies and
//! series are matched by the beginnings of their files; no slide is opened for that.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, WARNING};
use axum::http::{HeaderMap, HeaderValue, Uri};
use axum::response::Response;
use seekwire_slides_image::Instance;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::accept::{self, Offer};
use super::address::{Address, JSON, Parameters, address_of, index, is_uid, root, slides};
use super::body::Held;
use crate::failure::{Failure, Result};
use crate::series::{Index, Series};
use crate::slide_cache::Open;
use crate::web::app::{App, Shared};
use crate::web::response;

/// Searches at a time: each looks through all series.
static SEARCHES: Semaphore = Semaphore::const_new(4);

/// Maximum characters of a pattern: matching costs this times the length of a value.
const PATTERN: usize = 256;

/// Slides that one search for instances in all studies may open.
const OPENED: usize = 64;

/// Maximum results of one response, unless the client wants fewer.
const MOST: usize = 1000;

/// Attributes that can be matched: tag and name.
const MATCHED: [(&str, &str); 19] = [
    (CLASS, "SOPClassUID"),
    (INSTANCE, "SOPInstanceUID"),
    ("00080020", "StudyDate"),
    ("00080030", "StudyTime"),
    ("00080050", "AccessionNumber"),
    ("00080060", "Modality"),
    ("00080061", "ModalitiesInStudy"),
    ("00080090", "ReferringPhysicianName"),
    ("00081030", "StudyDescription"),
    ("0008103E", "SeriesDescription"),
    ("00100010", "PatientName"),
    ("00100020", "PatientID"),
    ("00100030", "PatientBirthDate"),
    ("00100040", "PatientSex"),
    ("0020000D", "StudyInstanceUID"),
    ("0020000E", "SeriesInstanceUID"),
    ("00200010", "StudyID"),
    ("00200011", "SeriesNumber"),
    (NUMBER, "InstanceNumber"),
];

const CLASS: &str = "00080016";
const INSTANCE: &str = "00080018";
const NUMBER: &str = "00200013";
/// Attributes that only instances have.
const OF_INSTANCES: [&str; 3] = [CLASS, INSTANCE, NUMBER];

/// Maximum ignored attributes that a response names, and maximum length of such a name.
const NAMED: usize = 8;
const NAME: usize = 64;

const MODALITY: &str = "00080060";
const MODALITIES: &str = "00080061";
const STUDY: &str = "0020000D";
const SERIES: &str = "0020000E";

type Object = Map<String, Value>;

/// A parsed search.
#[derive(Debug, Default)]
struct Search {
    /// Tags, and the patterns for their values.
    matches: Vec<(&'static str, String)>,
    limit: usize,
    offset: usize,
    /// Attributes in the query that cannot be matched here.
    ignored: Vec<String>,
}

impl Search {
    fn of(address: &Address, query: &[(String, String)], is_of_instances: bool) -> Result<Self> {
        let mut search = Self { limit: MOST, ..Self::default() };
        let (study, series) = (address.study.as_ref(), address.series.as_ref());
        for (tag, uid) in [(STUDY, study), (SERIES, series)] {
            if let Some(uid) = uid {
                search.matches.push((tag, uid.clone()));
            }
        }
        for (name, value) in query {
            let number = || {
                let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
                let number = value.parse::<usize>().ok().filter(|_| is_number);
                number.ok_or_else(|| Failure::bad(format!("{name}: a number")))
            };
            let is_same = |(tag, word): &&(&str, &str)| {
                tag.eq_ignore_ascii_case(name) || word.eq_ignore_ascii_case(name)
            };
            match &**name {
                "limit" => search.limit = number()?.min(MOST),
                "offset" => search.offset = number()?,
                name => match MATCHED.iter().find(is_same) {
                    // An empty value, and a star, match everything.
                    Some(_) if value.is_empty() || value == "*" => {}
                    Some(_) if value.contains(['*', '?']) && value.chars().count() > PATTERN => {
                        return Err(Failure::bad(format!("{name}: at most {PATTERN} characters")));
                    }
                    Some((tag, _)) if is_of_instances || !OF_INSTANCES.contains(tag) => {
                        search.matches.push((tag, value.clone()));
                    }
                    // The standard requires ignoring these with a warning (PS3.18, 8.3.4.2).
                    _ if is_attribute(name) => search.ignored.push(name.to_owned()),
                    _ => {}
                },
            }
        }
        Ok(search)
    }

    /// True if the object of a series matches, except for attributes that only instances have.
    fn fits(&self, object: &Object) -> bool {
        let mut of_series = self.matches.iter().filter(|(tag, _)| !OF_INSTANCES.contains(tag));
        of_series.all(|(tag, wanted)| {
            let tag = if *tag == MODALITIES { MODALITY } else { *tag };
            object.get(tag).is_some_and(|element| is_like(element, wanted))
        })
    }

    /// True if an instance matches in the attributes that only instances have.
    fn fits_instance(&self, instance: &Instance) -> bool {
        let mut own = self.matches.iter().filter(|(tag, _)| OF_INSTANCES.contains(tag));
        own.all(|(tag, wanted)| match *tag {
            CLASS => is_in_list(instance.class(), wanted),
            INSTANCE => is_in_list(instance.uid(), wanted),
            _ => instance.number().is_some_and(|number| wanted.trim().parse() == Ok(number)),
        })
    }

    /// A warning about attributes that were not matched, with only such parts of the client's text
    /// as are valid in a header.
    fn warning(&self) -> Option<String> {
        if self.ignored.is_empty() {
            return None;
        }
        let is_plain = |name: &&String| {
            name.len() <= NAME
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
        };
        let named: Vec<&str> =
            self.ignored.iter().filter(is_plain).take(NAMED).map(String::as_str).collect();
        let more = self.ignored.len() - named.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Some(format!("these attributes were not matched: {}{more}", named.join(", ")))
    }
}

/// True for a tag or the name of an attribute: these begin with a capital letter, and parameters do
/// not.
fn is_attribute(name: &str) -> bool {
    let is_tag = name.len() == 8 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_tag || name.starts_with(|first: char| first.is_ascii_uppercase())
}

fn is_in_list(uid: &str, wanted: &str) -> bool {
    wanted.split([',', '\\']).any(|wanted| wanted.trim() == uid)
}

/// True if a value of an element matches (PS3.4, section C.2.2.2).
fn is_like(element: &Value, wanted: &str) -> bool {
    let vr = element["vr"].as_str().unwrap_or_default();
    let values = element["Value"].as_array().map(Vec::as_slice).unwrap_or_default();
    let texts = values.iter().flat_map(|value| match value {
        Value::Object(name) => name.values().filter_map(Value::as_str).map(str::to_owned).collect(),
        Value::String(text) => vec![text.clone()],
        other => vec![other.to_string()],
    });
    let mut texts = texts;
    match vr {
        "UI" => texts.any(|text| is_in_list(&text, wanted)),
        "DA" | "TM" if wanted.contains('-') => {
            let (from, to) = wanted.split_once('-').unwrap_or_default();
            // Values of the same format sort like their meaning.
            texts.any(|text| {
                let end: String = text.chars().take(to.len()).collect();
                *text >= *from && (to.is_empty() || *end <= *to)
            })
        }
        "PN" => texts.any(|text| is_pattern_of(&wanted.to_lowercase(), &text.to_lowercase())),
        _ => texts.any(|text| is_pattern_of(wanted, &text)),
    }
}

/// True if a text matches a pattern, in which `*` is any text and `?` any character.
fn is_pattern_of(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut position) = (0, 0);
    // The last star, and the next place in the text to try after it.
    let mut star = None;
    while position < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, position + 1));
                at += 1;
            }
            Some(one) if *one == '?' || *one == text[position] => {
                at += 1;
                position += 1;
            }
            _ => {
                let Some((before, next)) = star else { return false };
                (at, position) = (before + 1, next);
                star = Some((before, next + 1));
            }
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

fn element(vr: &str, value: impl Into<Value>) -> Value {
    json!({"vr": vr, "Value": [value.into()]})
}

/// The attributes of a series.
fn object(series: &Series) -> Object {
    // This server wrote the JSON.
    serde_json::from_str(&series.heading.json).unwrap_or_default()
}

/// The results of one response, out of all results.
#[derive(Debug, Default)]
struct Page {
    offset: usize,
    limit: usize,
    matched: usize,
    results: Vec<Value>,
    warnings: Vec<String>,
}

impl Page {
    fn of(search: &Search) -> Self {
        let warnings = search.warning().into_iter().collect();
        Self { offset: search.offset, limit: search.limit, warnings, ..Self::default() }
    }

    /// True if it has as many results as it may have.
    fn is_full(&self) -> bool {
        self.results.len() >= self.limit
    }

    /// Counts a result, which is made only if it belongs to this page.
    fn add(&mut self, make: impl FnOnce() -> Object) {
        let number = self.matched;
        self.matched += 1;
        if number >= self.offset && self.results.len() < self.limit {
            self.results.push(make().into());
        }
    }

    fn answer(mut self, offer: &Offer<'_>) -> Response {
        let rest = self.matched.saturating_sub(self.offset.saturating_add(self.limit));
        let mut response = response::body(JSON, Value::from(self.results).to_string());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(offer.kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        if rest > 0 {
            self.warnings.push(format!("there are {rest} more results"));
        }
        for warning in self.warnings {
            if let Ok(warning) = HeaderValue::from_str(&format!("299 seekwire \"{warning}\"")) {
                headers.append(WARNING, warning);
            }
        }
        response
    }
}

/// Looks through all series in a blocking thread: there may be many.
async fn through(
    app: &Arc<App>,
    look: impl FnOnce(&Index) -> Page + Send + 'static,
) -> Result<Page> {
    let index = index(app).await?;
    searched(move || look(&index)).await
}

/// Searches in a blocking thread, when its turn comes.
async fn searched<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let turn = SEARCHES.acquire().await;
    let searching = tokio::task::spawn_blocking(move || {
        // The client may disconnect meanwhile.
        let _turn = turn;
        look()
    });
    searching.await.map_err(|_| Failure::internal("the search panicked"))
}

const OFFERS: [Offer<'static>; 2] = [
    Offer { is_multipart: false, kind: JSON, syntax: "", is_special: false },
    Offer { is_multipart: false, kind: "application/json", syntax: "", is_special: false },
];

/// `/studies`
pub(super) async fn studies(
    State(app): Shared,
    Query(query): Parameters,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response> {
    let offer = accept::choose(&headers, &query, &OFFERS)?;
    let search = Search::of(&Address::default(), &query, false)?;
    let root = root(&app, &uri, &headers)?;
    let page = through(&app, move |index| {
        let mut page = Page::of(&search);
        let mut all = index.iter().map(|((study, _), series)| (study, series)).peekable();
        while let Some((study, first)) = all.next() {
            let mut group = vec![first];
            while let Some((_, next)) = all.next_if(|(of, _)| *of == study) {
                group.push(next);
            }
            let objects: Vec<Object> = group.iter().map(|series| object(series)).collect();
            if objects.iter().any(|object| search.fits(object)) {
                page.add(|| of_study(&root, study, &group, objects));
            }
        }
        page
    });
    Ok(page.await?.answer(offer))
}

/// The attributes of a study with these series.
fn of_study(root: &str, study: &str, group: &[&Series], objects: Vec<Object>) -> Object {
    let modalities = objects.iter().filter_map(|object| object.get(MODALITY)?["Value"][0].as_str());
    let modalities: BTreeSet<String> = modalities.map(str::to_owned).collect();
    let files: usize = group.iter().map(|series| series.files).sum();
    let mut object = objects.into_iter().next().unwrap_or_default();
    for tag in [MODALITY, SERIES, "0008103E", "00200011"] {
        object.remove(tag);
    }
    object.insert(MODALITIES.into(), json!({"vr": "CS", "Value": modalities}));
    object.insert("00081190".into(), element("UR", format!("{root}/studies/{study}")));
    object.insert("00201206".into(), element("IS", group.len()));
    object.insert("00201208".into(), element("IS", files));
    object
}

/// `/series`, of all studies or of one
pub(super) async fn series(
    State(app): Shared,
    Path(address): Path<Address>,
    Query(query): Parameters,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response> {
    let offer = accept::choose(&headers, &query, &OFFERS)?;
    address.uids()?;
    let search = Search::of(&address, &query, false)?;
    let root = root(&app, &uri, &headers)?;
    let page = through(&app, move |index| {
        let mut page = Page::of(&search);
        for ((study, series), files) in index {
            let mut object = object(files);
            if search.fits(&object) {
                page.add(|| {
                    let address = format!("{root}/studies/{study}/series/{series}");
                    object.insert("00081190".into(), element("UR", address));
                    object.insert("00201209".into(), element("IS", files.files));
                    object
                });
            }
        }
        page
    });
    Ok(page.await?.answer(offer))
}

/// `/instances`: of all studies, of a study or of a series
pub(super) async fn instances(
    State(app): Shared,
    Path(address): Path<Address>,
    Query(query): Parameters,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response> {
    let offer = accept::choose(&headers, &query, &OFFERS)?;
    let search = Arc::new(Search::of(&address, &query, true)?);
    let root: Arc<str> = root(&app, &uri, &headers)?.into();
    let only_levels = app.only_levels();
    let mut page = Page::of(&search);
    if address.study.is_some() {
        let slides = slides(&app, &address).await?;
        let index_of_series = app.slides.library().known_series();
        let page = searched(move || {
            for open in slides {
                add_instances(&mut page, &search, &open, &index_of_series, &root, only_levels)?;
            }
            Ok::<_, Failure>(page)
        });
        return Ok(page.await??.answer(offer));
    }
    let index = index(&app).await?;
    let (of, wanted) = (Arc::clone(&index), Arc::clone(&search));
    let fitting = searched(move || {
        let fitting = of.values().filter(|series| wanted.fits(&object(series)));
        fitting.map(|series| series.id.clone()).collect::<Vec<_>>()
    });
    // Slides are opened one after the other until there are enough results.
    let ids = fitting.await?;
    let mut opened = 0;
    let mut broken = 0;
    for id in &ids {
        if page.is_full() {
            break;
        }
        if opened == OPENED {
            let what = format!("{} series: name the study or series of the instances", ids.len());
            return Err(Failure::not_implemented(what));
        }
        opened += 1;
        let Ok(open) = app.slides.get(id).await else {
            broken += 1;
            continue;
        };
        let (search, index, root) = (Arc::clone(&search), Arc::clone(&index), Arc::clone(&root));
        let adding = searched(move || {
            let added = add_instances(&mut page, &search, &open, &index, &root, only_levels);
            added.map(|()| page)
        });
        page = adding.await??;
    }
    if broken > 0 {
        page.warnings.push(format!("{broken} series cannot be read"));
    }
    if opened < ids.len() {
        page.warnings.push("there may be more results".to_owned());
    }
    Ok(page.answer(offer))
}

/// Adds the matching instances of a slide.
fn add_instances(
    page: &mut Page,
    search: &Search,
    open: &Arc<Open>,
    index_of_series: &Index,
    root: &str,
    only_levels: bool,
) -> Result<()> {
    let Some(dicom) = open.slide.dicom() else { return Ok(()) };
    let key = (dicom.study().to_owned(), dicom.series().to_owned());
    let of_series = index_of_series.get(&key).map(object).unwrap_or_default();
    if !search.fits(&of_series) {
        return Ok(());
    }
    for held in Held::all(open, only_levels) {
        let one = held.instance()?;
        if !is_uid(one.uid()) || !search.fits_instance(one) {
            continue;
        }
        let address = address_of(root, &held)?;
        page.add(|| {
            let mut object = of_series.clone();
            for (tag, value) in [
                (CLASS, element("UI", one.class())),
                (INSTANCE, element("UI", one.uid())),
                ("00081190", element("UR", address)),
                ("00083002", element("UI", one.transfer_syntax())),
                ("00280008", element("IS", one.frames())),
                ("00280010", element("US", one.rows())),
                ("00280011", element("US", one.columns())),
                ("00280100", element("US", one.bits())),
            ] {
                object.insert(tag.into(), value);
            }
            if let Some(number) = one.number() {
                object.insert(NUMBER.into(), element("IS", number));
            }
            object
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_matched_as_the_standard_says() {
        let name =
            json!({"vr": "PN", "Value": [{"Alphabetic": "Doe^Jane", "Ideographic": "某^某"}]});
        let date = json!({"vr": "DA", "Value": ["20240229"]});
        let uid = json!({"vr": "UI", "Value": ["1.2.3"]});
        let text = json!({"vr": "LO", "Value": ["Case 7"]});
        let none = json!({"vr": "LO"});
        for (element, wanted, expected) in [
            (&name, "doe^jane", true),
            (&name, "DOE*", true),
            (&name, "*jane*", true),
            (&name, "某*", true),
            (&name, "doe", false),
            (&date, "20240229", true),
            (&date, "20240101-20241231", true),
            (&date, "20240301-", false),
            (&date, "-20240229", true),
            (&date, "-2024", true),
            (&date, "20230101-20231231", false),
            (&uid, "1.2.3", true),
            (&uid, "9,1.2.3", true),
            (&uid, "1.2", false),
            (&uid, "1.2.*", false),
            (&text, "Case ?", true),
            (&text, "case 7", false),
            (&text, "*a*e*7*", true),
            (&text, "**??????**", true),
            (&text, "???????", false),
            (&none, "a", false),
        ] {
            assert_eq!(is_like(element, wanted), expected, "{element} {wanted}");
        }
        assert!(!is_pattern_of(&"*a".repeat(1000), &"b".repeat(10_000)));
    }

    #[test]
    fn what_is_not_matched_is_left_out_and_said() {
        let of = |pairs: &[(&str, &str)], is_of_instances: bool| {
            let pairs: Vec<(String, String)> =
                pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
            Search::of(&Address::default(), &pairs, is_of_instances)
        };
        let search = |pairs: &[(&str, &str)]| of(pairs, false);
        let parsed = search(&[
            ("PatientID", "7"),
            ("00100010", "*"),
            ("limit", "10"),
            ("offset", "3"),
            ("fuzzymatching", "true"),
            ("includefield", "all"),
        ]);
        let parsed = parsed.unwrap();
        assert_eq!((parsed.limit, parsed.offset), (10, 3));
        assert_eq!(parsed.matches, [("00100020", "7".to_owned())]);
        assert_eq!(parsed.warning(), None);
        let class = [("SOPClassUID", "1.2"), ("00200013", "3"), ("PixelData", "1")];
        let parsed = of(&class, true).unwrap();
        assert_eq!(parsed.matches, [(CLASS, "1.2".to_owned()), (NUMBER, "3".to_owned())]);
        let said = parsed.warning().unwrap();
        assert_eq!(said, "these attributes were not matched: PixelData");
        // Studies have no instance classes, and a client's text is not copied into a header.
        let parsed = of(&[class[0], ("A\r\nSet-Cookie: a", "1"), ("A\"b", "1")], false).unwrap();
        assert!(parsed.matches.is_empty());
        let said = parsed.warning().unwrap();
        assert_eq!(said, "these attributes were not matched: SOPClassUID and 2 more");
        let (long, longer) = ("a".repeat(1000), "*a".repeat(200));
        assert!(search(&[("StudyInstanceUID", &*long)]).is_ok());
        for wrong in [("limit", "-1"), ("offset", "x"), ("PatientName", &*longer)] {
            assert!(search(&[wrong]).is_err(), "{wrong:?}");
        }
        assert_eq!(search(&[("limit", "999999")]).unwrap().limit, MOST);
    }
}
