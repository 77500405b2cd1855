//! Chromium without a screen, as somebody who looks at a page: a script in a copy of the page says
//! what was laid out, and a picture shows what was drawn.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use serde::Deserialize;

use crate::harness::{Stage, either};

/// A browser with a profile of its own.
#[derive(Debug)]
pub(crate) struct Browser<'a> {
    stage: &'a Stage,
}

/// How a page is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Width of the window, in CSS pixels.
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Whether the reader prefers dark pages.
    pub(crate) dark: bool,
}

/// The result of a visit.
#[derive(Debug)]
pub(crate) struct Visit {
    /// The output on the browser's console.
    console: Vec<String>,
    layout: Layout,
    pub(crate) plots: Vec<Plot>,
    pub(crate) picture: Picture,
}

#[derive(Debug, Deserialize)]
struct Report {
    layout: Layout,
    plots: Vec<Plot>,
}

#[derive(Debug, Deserialize)]
struct Layout {
    /// Widths of the window and of its content.
    window: f64,
    content: f64,
    /// Addresses that the page tried to fetch.
    fetched: Vec<String>,
}

/// A plot as it was laid out.
#[derive(Debug, Deserialize)]
pub(crate) struct Plot {
    name: Option<String>,
    width: f64,
    height: f64,
    shapes: usize,
    /// Pairs of texts that lie on each other.
    overlaps: Vec<String>,
}

/// The policy forbids all fetches of the page, and the script reports each violation.
const SCRIPT: &str = r#"<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<script>
const fetched = [];
addEventListener("securitypolicyviolation", violation => fetched.push(violation.blockedURI));
addEventListener("load", () => {
  const overlaps = svg => {
    const texts = [...svg.querySelectorAll("text")].map(t => [t.textContent.trim(), t.getBoundingClientRect()]);
    const found = [];
    texts.forEach(([a, p], i) => texts.slice(i + 1).forEach(([b, q]) => {
      const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      // Lines of text have some air above and below.
      if (across > 1 && down > 0.35 * Math.min(p.height, q.height)) found.push(a + " / " + b);
    }));
    return found;
  };
  const plots = [...document.querySelectorAll("figure svg")].map(svg => {
    const { width, height } = svg.getBoundingClientRect();
    const shapes = svg.querySelectorAll("rect, line, polyline, polygon, circle, path").length;
    return { name: svg.getAttribute("aria-label"), width, height, shapes, overlaps: overlaps(svg) };
  });
  const layout = { window: innerWidth, content: document.documentElement.scrollWidth, fetched };
  const said = document.createElement("pre");
  said.id = "said";
  said.textContent = encodeURIComponent(JSON.stringify({ layout, plots }));
  said.hidden = true;
  document.body.append(said);
});
</script>"#;

impl<'a> Browser<'a> {
    pub(crate) fn new(stage: &'a Stage) -> Self {
        Self { stage }
    }

    /// Opens `page` and looks at it once it has been loaded.
    pub(crate) fn visit(&self, page: &Path, look: Look) -> Visit {
        let html = fs::read_to_string(page).expect("a page");
        let copy = page.with_extension("visited");
        // Before everything else, so that what comes later cannot stop it.
        fs::write(
            &copy,
            html.replacen("<html lang=\"en\">", &format!("<html lang=\"en\">{SCRIPT}"), 1),
        )
        .expect("a copy of the page");
        let visited = copy.with_extension("visited.html");
        fs::rename(&copy, &visited).expect("a copy of the page");

        let picture = self.stage.path("picture.png");
        let mut command =
            self.stage.plain_command(either(&["chromium", "chromium-headless-shell"]));
        // Root cannot have the sandbox, and the page is our own.
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
        ]);
        command.args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ]);
        command.args([
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
            "--v=0",
            "--dump-dom",
        ]);
        command.arg(format!("--user-data-dir={}", self.stage.path("profile").display()));
        command.arg(format!("--window-size={},{}", look.width, look.height));
        command.arg(format!("--screenshot={}", picture.display()));
        if look.dark {
            command.arg("--force-dark-mode");
        }
        command.arg(format!("file://{}", visited.display())).env("HOME", self.stage.path("home"));
        let finished = self.stage.run(&mut command);
        fs::remove_file(&visited).expect("the copy of the page");

        let console = finished
            .stderr
            .lines()
            .filter(|line| line.contains("CONSOLE"))
            .map(str::to_owned)
            .collect();
        let dom = finished.success();
        let said = dom.split("id=\"said\"").nth(1).and_then(|rest| rest.split(['>', '<']).nth(1));
        let said = said.unwrap_or_else(|| panic!("the page says nothing: {dom}"));
        let Report { layout, plots } =
            serde_json::from_str(&decoded(said)).expect("what the script says");
        Visit { console, layout, plots, picture: Picture::read(&picture) }
    }
}

/// Undoes encodeURIComponent().
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).expect("two digits"));
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).expect("UTF-8")
}

impl Visit {
    /// Everything that is wrong with the page.
    pub(crate) fn complaints(&self) -> Vec<String> {
        // The browser's own pages complain of a slow network where there is none.
        let own = |line: &&String| !line.contains("source: chrome://");
        let mut complaints: Vec<String> = self.console.iter().filter(own).cloned().collect();
        complaints.extend(self.layout.fetched.iter().map(|what| format!("it fetches {what}")));
        if self.layout.content > self.layout.window {
            complaints.push(format!(
                "wider ({}) than the window ({})",
                self.layout.content, self.layout.window
            ));
        }
        for plot in &self.plots {
            let name = plot.name.as_deref().unwrap_or("a plot");
            if plot.name.as_deref().is_none_or(str::is_empty) {
                complaints.push(format!("{name} has no name"));
            }
            if plot.width < 300.0 || plot.height < 80.0 || plot.shapes < 5 {
                complaints.push(format!("{name} has no size, or is empty"));
            }
            complaints.extend(
                plot.overlaps.iter().map(|texts| format!("{name}: texts overlap: {texts}")),
            );
        }
        complaints
    }
}

/// A picture of the window.
#[derive(Debug)]
pub(crate) struct Picture {
    /// The colour of the upper left corner.
    ground: [u8; 3],
    /// How many pixels of a hundred have another colour, and how many colours there are.
    drawn: f64,
    colours: usize,
}

impl Picture {
    fn read(file: &Path) -> Self {
        let decoder = png::Decoder::new(BufReader::new(File::open(file).expect("a picture")));
        let mut reader = decoder.read_info().expect("a picture");
        let mut bytes =
            vec![0; reader.output_buffer_size().expect("a picture that fits into memory")];
        let frame = reader.next_frame(&mut bytes).expect("a picture");
        let samples = frame.color_type.samples();
        let mut colours: BTreeMap<[u8; 3], usize> = BTreeMap::new();
        let pixels = bytes[..frame.buffer_size()].chunks_exact(samples);
        let count = pixels.len();
        for pixel in pixels {
            *colours.entry([pixel[0], pixel[1], pixel[2]]).or_default() += 1;
        }
        let ground = [bytes[0], bytes[1], bytes[2]];
        let drawn = 100.0 * (count - colours[&ground]) as f64 / count as f64;
        Self { ground, drawn, colours: colours.len() }
    }

    /// Whether there is anything on it.
    pub(crate) fn is_drawn(&self) -> bool {
        self.drawn > 1.0 && self.colours > 20
    }

    /// Whether its ground is dark.
    pub(crate) fn is_dark(&self) -> bool {
        self.ground.iter().map(|&part| u32::from(part)).sum::<u32>() < 3 * 100
    }
}
