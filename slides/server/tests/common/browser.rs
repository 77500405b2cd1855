//! Headless Chromium, controlled over the DevTools protocol
//! (<https://chromedevtools.github.io/devtools-protocol/>): commands and events in JSON, each
//! terminated by a zero byte, through two pipes.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::RgbImage;
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long a browser may take for anything.
const BROWSER_TIMEOUT: Duration = Duration::from_secs(240);

/// A browser with its own profile, which ends on drop.
pub(crate) struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    /// Events received while waiting for an answer.
    events: VecDeque<Value>,
    next: u64,
    _profile: TempDir,
}

/// The name of the program in this distribution.
fn program() -> &'static str {
    let names = ["chromium", "chromium-headless-shell"];
    let is_there = |name: &&&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
    };
    names.iter().find(is_there).expect("chromium is installed (scripts/deps test installs it)")
}

impl Browser {
    pub(crate) fn start() -> Self {
        // Without graphics hardware, drawing with WebGL takes five times as long as with a canvas.
        Self::with(&["--disable-gpu", "--disable-3d-apis"])
    }

    /// A browser that draws with WebGL, in software.
    pub(crate) fn with_webgl() -> Self {
        Self::with(&["--use-angle=swiftshader", "--enable-unsafe-swiftshader"])
    }

    fn with(graphics: &[&str]) -> Self {
        let profile = tempfile::tempdir().unwrap();
        // It reads commands from descriptor 3 and writes answers to descriptor 4.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "exec \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null",
                "sh",
                program(),
            ])
            .args(["--headless", "--remote-debugging-pipe", "--no-first-run", "--hide-scrollbars"])
            // The sandbox does not work for root, and the pages are our own.
            .args(["--no-sandbox", "--disable-dev-shm-usage"])
            .args(graphics)
            .args(["--disable-background-networking", "--disable-component-update"])
            .args(["--disable-sync", "--force-device-scale-factor=1"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, messages) = channel();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while answers.read_until(0, &mut message).is_ok_and(|count| count > 0) {
                message.pop();
                let value = serde_json::from_slice(&message).expect("JSON");
                if tell.send(value).is_err() {
                    break;
                }
                message.clear();
            }
        });
        let commands = child.stdin.take().unwrap();
        let events = VecDeque::new();
        Self { child, commands, messages, events, next: 1, _profile: profile }
    }

    fn call(&mut self, session: Option<&str>, method: &str, parameters: Value) -> Value {
        let answer = self.ask(session, method, parameters);
        answer.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// The result of a command, or the browser's error.
    fn ask(
        &mut self,
        session: Option<&str>,
        method: &str,
        parameters: Value,
    ) -> Result<Value, Value> {
        let id = self.next;
        self.next += 1;
        let mut command = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = session {
            command["sessionId"] = session.into();
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).unwrap();
        loop {
            let message = self.message(method);
            if message["id"] == id {
                return match &message["error"] {
                    Value::Null => Ok(message["result"].clone()),
                    error => Err(error.clone()),
                };
            }
            self.events.push_back(message);
        }
    }

    fn message(&mut self, why: &str) -> Value {
        let message = self.messages.recv_timeout(BROWSER_TIMEOUT);
        message.unwrap_or_else(|error| panic!("{why}: the browser does not answer: {error}"))
    }

    /// A page of that size; with touch, as on a phone.
    pub(crate) fn page(&mut self, width: u32, height: u32, has_touch: bool) -> Page<'_> {
        let created = self.call(None, "Target.createTarget", json!({ "url": "about:blank" }));
        let target = created["targetId"].as_str().unwrap().to_owned();
        let attach = json!({ "targetId": target, "flatten": true });
        let attached = self.call(None, "Target.attachToTarget", attach);
        let session = attached["sessionId"].as_str().unwrap().to_owned();
        let mut page = Page { browser: self, session, target, complaints: Vec::new() };
        for domain in ["Page", "Runtime", "Network", "Log"] {
            page.call(&format!("{domain}.enable"), json!({}));
        }
        page.size(width, height, has_touch);
        page.call("Emulation.setTouchEmulationEnabled", json!({ "enabled": has_touch }));
        page
    }
}

/// True if the browser could not answer because the page was left meanwhile.
fn is_left(error: &Value) -> bool {
    let message = error["message"].as_str().unwrap_or_default();
    ["navigated", "context was destroyed", "Cannot find context", "Cannot find default execution"]
        .iter()
        .any(|part| message.contains(part))
}

impl Drop for Browser {
    fn drop(&mut self) {
        let close = json!({ "id": self.next, "method": "Browser.close" });
        let _ = self.commands.write_all(format!("{close}\0").as_bytes());
        // It sends nothing more once it has ended.
        loop {
            match self.messages.recv_timeout(BROWSER_TIMEOUT) {
                Ok(_) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                    let _ = self.child.kill();
                    break;
                }
            }
        }
        let _ = self.child.wait();
    }
}

/// A page, which is closed on drop.
pub(crate) struct Page<'a> {
    browser: &'a mut Browser,
    session: String,
    target: String,
    /// Errors and warnings on the console, and failed requests.
    complaints: Vec<String>,
}

impl Page<'_> {
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        let session = self.session.clone();
        self.browser.call(Some(&session), method, parameters)
    }

    /// Resizes the window.
    pub(crate) fn size(&mut self, width: u32, height: u32, has_touch: bool) {
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": has_touch }),
        );
    }

    pub(crate) fn open(&mut self, address: &str) {
        // Navigating to another fragment would not reload the page.
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        let answer = self.call("Page.navigate", json!({ "url": address }));
        assert!(answer["errorText"].is_null(), "{address}: {answer}");
    }

    /// The value of an expression in the page, after its promise is fulfilled.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        self.value_here(expression).unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// The same, or the error if the page is left for another one meanwhile.
    fn value_here(&mut self, expression: &str) -> Result<Value, Value> {
        let parameters =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let session = self.session.clone();
        let answer = self.browser.ask(Some(&session), "Runtime.evaluate", parameters)?;
        let exception = &answer["exceptionDetails"];
        assert!(exception.is_null(), "{expression}: {exception}");
        Ok(answer["result"]["value"].clone())
    }

    pub(crate) fn number(&mut self, expression: &str) -> f64 {
        let value = self.value(expression);
        value.as_f64().unwrap_or_else(|| panic!("{expression} is {value}"))
    }

    /// Waits until a condition holds in the page, or in the one to which a link leads. It is
    /// checked at each frame.
    pub(crate) fn until(&mut self, condition: &str) {
        let look = format!(
            "new Promise((resolve) => {{
                const end = performance.now() + {};
                const look = () => {{
                    let holds = false;
                    try {{ holds = Boolean({condition}); }} catch {{ holds = false; }}
                    if (holds || performance.now() > end) {{ resolve(holds); }}
                    else {{ requestAnimationFrame(look); }}
                }};
                look();
            }})",
            BROWSER_TIMEOUT.as_millis() / 2
        );
        let holds = loop {
            match self.value_here(&look) {
                Ok(holds) => break holds,
                Err(error) if is_left(&error) => {}
                Err(error) => panic!("{condition}: {error}"),
            }
        };
        assert_eq!(holds, true, "{condition}: {:?}", self.complaints());
    }

    /// Presses and releases the left button in the middle of an element.
    pub(crate) fn click(&mut self, selector: &str) {
        let position = self.value(&format!(
            "(() => {{ const box = document.querySelector('{selector}').getBoundingClientRect();
                return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        ));
        let (x, y) = (position[0].as_f64().unwrap(), position[1].as_f64().unwrap());
        for kind in ["mousePressed", "mouseReleased"] {
            self.mouse(kind, x, y);
        }
    }

    /// Presses and releases the left button, or a finger, at a position in the window.
    pub(crate) fn press(&mut self, point: (f64, f64), has_touch: bool) {
        let (x, y) = point;
        if has_touch {
            for points in [json!([{ "x": x, "y": y }]), json!([])] {
                let kind = if points == json!([]) { "touchEnd" } else { "touchStart" };
                let event = json!({ "type": kind, "touchPoints": points });
                self.call("Input.dispatchTouchEvent", event);
            }
            return;
        }
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            self.mouse(kind, x, y);
        }
    }

    /// Presses and releases a key, which pages identify by its name or number.
    pub(crate) fn key(&mut self, key: &str, number: u8) {
        for kind in ["keyDown", "keyUp"] {
            let about = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": number });
            self.call("Input.dispatchKeyEvent", about);
        }
    }

    fn mouse(&mut self, kind: &str, x: f64, y: f64) {
        let button = if kind == "mouseMoved" { "none" } else { "left" };
        let buttons = u8::from(kind != "mouseReleased");
        let event = json!({
            "type": kind, "x": x, "y": y, "button": button, "buttons": buttons, "clickCount": 1,
        });
        self.call("Input.dispatchMouseEvent", event);
    }

    /// Drags from one point to another, with the mouse or a finger.
    pub(crate) fn drag(&mut self, from: (f64, f64), to: (f64, f64), has_touch: bool) {
        let between =
            |part: f64| (from.0 + (to.0 - from.0) * part, from.1 + (to.1 - from.1) * part);
        let steps = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];
        for (number, (x, y)) in steps.map(between).into_iter().enumerate() {
            if has_touch {
                let kind = if number == 0 { "touchStart" } else { "touchMove" };
                let event = json!({ "type": kind, "touchPoints": [{ "x": x, "y": y }] });
                self.call("Input.dispatchTouchEvent", event);
            } else {
                self.mouse(if number == 0 { "mousePressed" } else { "mouseMoved" }, x, y);
            }
        }
        match has_touch {
            true => {
                let event = json!({ "type": "touchEnd", "touchPoints": [] });
                self.call("Input.dispatchTouchEvent", event);
            }
            false => self.mouse("mouseReleased", to.0, to.1),
        }
    }

    /// Turns the wheel by one notch, away from the user.
    pub(crate) fn wheel(&mut self, point: (f64, f64)) {
        let (x, y) = point;
        let event = json!({ "type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": -100 });
        self.call("Input.dispatchMouseEvent", event);
    }

    /// A screenshot as a PNG file.
    pub(crate) fn picture(&mut self) -> Vec<u8> {
        let answer = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        STANDARD.decode(answer["data"].as_str().unwrap()).unwrap()
    }

    pub(crate) fn pixels(&mut self) -> RgbImage {
        image::load_from_memory(&self.picture()).unwrap().into_rgb8()
    }

    /// All errors in the page so far.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        // All events before the answer to this have arrived.
        self.call("Runtime.evaluate", json!({ "expression": "0" }));
        let session = self.session.clone();
        let events = self.browser.events.drain(..).filter(|event| event["sessionId"] == *session);
        let complaints = events.filter_map(|event| {
            let of = &event["params"];
            match event["method"].as_str().unwrap_or_default() {
                "Runtime.consoleAPICalled" if of["type"] != "log" && of["type"] != "info" => {
                    Some(format!("console: {}: {}", of["type"], of["args"]))
                }
                "Runtime.exceptionThrown" => Some(format!("exception: {}", of["exceptionDetails"])),
                // Messages of the graphics driver do not concern the page.
                "Log.entryAdded" if of["entry"]["source"] == "rendering" => None,
                "Log.entryAdded" if of["entry"]["level"] != "verbose" => {
                    Some(format!("log: {}", of["entry"]))
                }
                // The page itself cancels requests that it no longer needs.
                "Network.loadingFailed" if of["canceled"] != true => Some(format!("failed: {of}")),
                "Network.responseReceived" if of["response"]["status"].as_u64() >= Some(400) => {
                    let response = &of["response"];
                    Some(format!("{}: {}", response["status"], response["url"]))
                }
                _ => None,
            }
        });
        let complaints: Vec<String> = complaints.collect();
        self.complaints.extend(complaints);
        self.complaints.clone()
    }
}

impl Drop for Page<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let target = self.target.clone();
            self.browser.call(None, "Target.closeTarget", json!({ "targetId": target }));
        }
    }
}
