//! Whether an SVG file is a plot and nothing else: it becomes part of a page.

use roxmltree::{Document, Node};

/// What our plots are made of.
const ELEMENTS: [&str; 11] =
    ["svg", "g", "rect", "line", "polyline", "polygon", "circle", "ellipse", "path", "text", "tspan"];

/// Neither script nor style, nor anything that fetches.
const ATTRIBUTES: [&str; 36] = [
    "width",
    "height",
    "viewBox",
    "x",
    "y",
    "x1",
    "x2",
    "y1",
    "y2",
    "cx",
    "cy",
    "r",
    "rx",
    "ry",
    "dx",
    "dy",
    "d",
    "points",
    "transform",
    "fill",
    "stroke",
    "stroke-width",
    "stroke-opacity",
    "fill-opacity",
    "opacity",
    "stroke-dasharray",
    "stroke-linecap",
    "stroke-linejoin",
    "text-anchor",
    "font-family",
    "font-size",
    "font-weight",
    "font-style",
    "dominant-baseline",
    "class",
    "id",
];

const NAMESPACE: &str = "http://www.w3.org/2000/svg";

/// The drawing without what may stand before it.
///
/// # Errors
///
/// If it is no SVG, or holds anything else than shapes and text.
pub(super) fn checked(text: &str) -> Result<&str, String> {
    let document = Document::parse(text).map_err(|error| format!("no SVG: {error}"))?;
    let root = document.root_element();
    let svg = &text[root.range()];
    // HTML reads these in another way than XML does.
    if svg.contains("<!") || svg.contains("<?") {
        return Err("it holds more than elements and text".to_owned());
    }
    root.descendants().try_for_each(|node| check(&node))?;
    match root.tag_name().name() {
        "svg" if svg.starts_with("<svg ") => Ok(svg),
        other => Err(format!("it begins with {other}")),
    }
}

fn check(node: &Node<'_, '_>) -> Result<(), String> {
    if !node.is_element() {
        return Ok(());
    }
    let name = node.tag_name();
    if name.namespace() != Some(NAMESPACE) || !ELEMENTS.contains(&name.name()) {
        return Err(format!("it holds <{}>", name.name()));
    }
    for attribute in node.attributes() {
        let value = attribute.value();
        if attribute.namespace().is_some()
            || !ATTRIBUTES.contains(&attribute.name())
            || value.to_ascii_lowercase().contains("url")
        {
            return Err(format!("it has an attribute {}", attribute.name()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Bar, Chart, Figure};

    #[test]
    fn our_own_plots_pass() {
        let bar = Bar { name: "a <b> & c".to_owned(), value: 1.5, low: 1.0, high: 2.0 };
        let chart = Chart::Ratios { label: "ratio".to_owned(), bars: vec![bar] };
        let svg = Figure { file: "f.svg".to_owned(), title: "t".to_owned(), chart }.to_svg().unwrap();
        assert!(checked(&svg).unwrap().starts_with("<svg "));
    }

    #[test]
    fn nothing_else_does() {
        let inside =
            |inner: &str| format!("<svg xmlns=\"{NAMESPACE}\" width=\"1\" height=\"1\">{inner}</svg>");
        assert!(checked(&inside("<rect x=\"0\"/><text>a</text>")).is_ok());
        for foreign in [
            "<script>alert(1)</script>",
            "<rect onclick=\"alert(1)\"/>",
            "<a href=\"http://example.org\"><text>a</text></a>",
            "<image width=\"1\"/>",
            "<rect fill=\"URL(http://example.org/a)\"/>",
            "<rect style=\"fill:red\"/>",
            "<style>rect { fill: red }</style>",
            "<foreignObject/>",
            "<text><![CDATA[<script>]]></text>",
            "<!-- --><rect/>",
            "<rect",
        ] {
            checked(&inside(foreign)).expect_err(foreign);
        }
        assert!(checked("<html/>").is_err() && checked("").is_err());
        assert!(checked("<!DOCTYPE svg [<!ENTITY a 'b'>]><svg xmlns=\"x\"/>").is_err());
    }
}
