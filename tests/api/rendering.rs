//! `object_render`, `document_export` and `thumbnail_generate` through the public API: the real binary, its executor
//! and its sandbox.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use catena_tests::TIMEOUT;
use catena_tests::http::Request;
use catena_tests::process::{FREE, Process};
use catena_tests::site::Client;
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

fn binary() -> PathBuf {
    env!("CARGO_BIN_EXE_catena").into()
}

/// A venue with one executor.
struct Bench {
    venue: Process,
    client: Client,
    folder: tempfile::TempDir,
}

async fn start_at(address: SocketAddr, folder: &Path) -> Process {
    let more = ["--executors", "1", "--limits-worker-lease", "2s"].map(str::to_owned);
    Process::start_at(address, &binary(), &folder.join("data"), &more).await
}

impl Bench {
    async fn start() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let venue = start_at(FREE, folder.path()).await;
        let client = Client::anonymous(venue.address);
        Bench { venue, client, folder }
    }

    /// Submits a job as soon as there is an environment for it.
    async fn submit(&self, body: &Json) -> Json {
        self.submit_as(&self.client, body).await
    }

    async fn submit_as(&self, client: &Client, body: &Json) -> Json {
        let started = tokio::time::Instant::now();
        loop {
            let reply = client.post("/contract/v1/jobs", body).await;
            if reply.status() < 300 {
                return reply.json();
            }
            let is_early = reply.status() == 503 || reply.text().contains("UNSUPPORTED_JOB_TYPE");
            assert!(is_early, "{}", reply.text());
            assert!(started.elapsed() < TIMEOUT, "no environment was announced: {}", reply.text());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits for the end of a job.
    async fn ended(&self, job: &Json) -> Json {
        self.ended_as(&self.client, job).await
    }

    async fn ended_as(&self, client: &Client, job: &Json) -> Json {
        let path = format!("/contract/v1/jobs/{}?wait=20000", job["job_id"].as_str().unwrap());
        let started = tokio::time::Instant::now();
        loop {
            let result = client.get(&path).await.expect(200).json();
            if !["PENDING", "QUEUED", "RUNNING"].contains(&result["status"].as_str().unwrap()) {
                return result;
            }
            assert!(started.elapsed() < 4 * TIMEOUT, "{result}");
        }
    }

    async fn run(&self, body: &Json) -> Json {
        let job = self.submit(body).await;
        self.ended(&job).await
    }

    /// The error of a job that must fail, as category and code.
    async fn failed(&self, body: &Json) -> Json {
        let result = self.run(body).await;
        assert_ne!(result["status"], "SUCCEEDED", "{result}");
        result["error"].clone()
    }

    /// The artifact of this format, fetched by its signed URL, with its digest checked.
    async fn fetch(&self, result: &Json, format: &str) -> (Json, Vec<u8>) {
        assert_eq!(result["status"], "SUCCEEDED", "{result}");
        let list = result["artifacts"].as_array().unwrap();
        let artifact = list.iter().find(|one| one["format"] == format);
        let artifact = artifact.unwrap_or_else(|| panic!("no {format}: {result}")).clone();
        let path = format!(
            "/contract/v1/jobs/{}/artifacts/{}",
            result["job_id"].as_str().unwrap(),
            artifact["artifact_id"].as_str().unwrap()
        );
        let signed = self.client.get(&path).await.expect(200).json();
        let url = signed["url"].as_str().unwrap();
        let reply = self.client.get(&url[url.find("/contract").unwrap()..]).await.expect(200);
        let digest: String =
            Sha256::digest(&reply.body).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(artifact["digest"], format!("sha256:{digest}"));
        assert_eq!(artifact["size_bytes"], reply.body.len());
        (artifact, reply.body)
    }

    /// Uploads data of a caller. Returns its digest.
    async fn upload(&self, client: &Client, content: &[u8]) -> String {
        let digits: String =
            Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
        let digest = format!("sha256:{digits}");
        let request: Request =
            client.request("PUT", &format!("/contract/v1/datasets/{digest}")).body(content);
        client.ask(request).await.expect(200);
        digest
    }
}

fn uuid(number: u32) -> String {
    format!("018f4d2e-0000-7000-8000-0000{number:08x}")
}

/// A payload of this type, as section 7 of the contract has them.
fn payload(job_type: &str, inputs: Json, output_spec: Json) -> Json {
    json!({
        "schema_version": "1.0", "job_id": uuid(9), "job_type": job_type,
        "workspace_id": uuid(1), "project_id": uuid(2), "document_id": uuid(3), "document_revision_id": uuid(4),
        "execution_key": "sha256:...",
        "target": {"object_id": uuid(5)},
        "inputs": inputs, "output_spec": output_spec,
    })
}

fn formula(source: &str) -> Json {
    content("latex", source)
}

fn content(format: &str, source: &str) -> Json {
    let object = json!({"type": "equation", "content": {"format": format, "value": source}});
    payload("object_render", json!({"object": object}), json!({"formats": ["svg", "png"]}))
}

fn export(format: &str, view: &str, document: Json) -> Json {
    let inputs = json!({"export_format": format, "view_mode": view, "include_speaker_notes": false, "document": document});
    payload("document_export", inputs, json!({"formats": [format]}))
}

/// Width and height in the header of a PNG.
fn png_size(bytes: &[u8]) -> (u32, u32) {
    assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    (number(16), number(20))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_formula_of_the_contract_becomes_svg_and_png_and_equal_work_is_done_once() {
    let bench = Bench::start().await;
    let body = formula(r"\int_0^1 x^2 dx");
    let result = bench.run(&body).await;
    let (artifact, svg) = bench.fetch(&result, "svg").await;
    let svg = String::from_utf8(svg).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for forbidden in ["<script", "foreignObject", "href=\"http", " onload", "<a "] {
        assert!(!svg.contains(forbidden), "{forbidden}");
    }
    let metadata = &artifact["metadata"];
    assert_eq!((&metadata["alt"], &metadata["unit"]), (&json!(r"\int_0^1 x^2 dx"), &json!("pt")));
    let number = |name: &str| metadata[name].as_f64().unwrap();
    assert!(number("width") > 30.0 && number("height") > 20.0, "{metadata}");
    let baseline = number("baseline") / number("height");
    assert!(baseline > 0.4 && baseline < 0.8, "{metadata}");
    let (artifact, png) = bench.fetch(&result, "png").await;
    let (width, height) = png_size(&png);
    assert_eq!(artifact["metadata"]["width"], width);
    assert_eq!(artifact["metadata"]["height"], height);
    assert!(f64::from(width) >= 1.9 * number("width"), "two pixels for each point");
    let version = result["environment"]["env_version"].as_str().unwrap();
    assert!(version.starts_with("render@") && version.len() == 19, "{version}");
    let again = bench.submit(&body).await;
    assert_eq!((&again["deduplicated"], &again["job_id"]), (&json!(true), &result["job_id"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_change_an_image() {
    let bench = Bench::start().await;
    let mut body = formula("x");
    body["output_spec"] = json!({"formats": ["png"], "options":
        {"scale": 8, "font_size": 20, "color": "#ff0000", "background": "#ffffff"}});
    let result = bench.run(&body).await;
    let (_, large) = bench.fetch(&result, "png").await;
    body["output_spec"] = json!({"formats": ["png"], "options": {"scale": 1}});
    let result = bench.run(&body).await;
    let (_, small) = bench.fetch(&result, "png").await;
    assert!(
        png_size(&large).0 > 8 * png_size(&small).0,
        "{:?} {:?}",
        png_size(&large),
        png_size(&small)
    );
    // A formula within a line is lower than one that stands alone.
    let mut body = formula(r"\sum_{i=1}^n i");
    let height = async |body: &Json| {
        let result = bench.run(body).await;
        bench.fetch(&result, "svg").await.0["metadata"]["height"].as_f64().unwrap()
    };
    let alone = height(&body).await;
    body["inputs"]["object"]["content"]["display"] = json!(false);
    assert!(height(&body).await < 0.7 * alone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_with_a_figure_becomes_pdf_and_html_in_both_views() {
    let bench = Bench::start().await;
    let result = bench.run(&formula(r"\frac{a}{b}")).await;
    let (artifact, _) = bench.fetch(&result, "png").await;
    let document = json!({"title": "Heat", "authors": ["A. Author"], "lang": "en", "blocks": [
        {"type": "heading", "level": 1, "text": "Introduction", "label": "intro"},
        {"type": "text", "text": "Some *text* with $x^2$, a [link](https://example.org) and [](#eq)."},
        {"type": "equation", "latex": "u_t = u_{xx}", "label": "eq"},
        {"type": "figure", "digest": artifact["digest"], "caption": "A fraction", "alt": "a over b", "label": "fig"},
        {"type": "heading", "level": 2, "text": "Data"},
        {"type": "table", "header": ["n", "value"], "rows": [[1, "a"], [2, null]], "caption": "Values"},
        {"type": "list", "ordered": true, "items": ["one", "two"]},
        {"type": "code", "language": "python", "text": "print(1)", "output": "1"},
        {"type": "quote", "text": "Said."}, {"type": "divider"}, {"type": "page_break"},
        {"type": "notes", "text": "Speak slowly."},
        {"type": "text", "text": "The end, see [](#fig) and [the start](#intro)."},
    ]});
    for view in ["document", "slide"] {
        let result = bench.run(&export("pdf", view, document.clone())).await;
        let (artifact, pdf) = bench.fetch(&result, "pdf").await;
        assert!(pdf.starts_with(b"%PDF-") && artifact["content_type"] == "application/pdf");
        assert!(artifact["metadata"]["pages"].as_u64().unwrap() >= 2, "{artifact}");
        let result = bench.run(&export("html", view, document.clone())).await;
        let (_, html) = bench.fetch(&result, "html").await;
        let html = String::from_utf8(html).unwrap();
        for part in [
            "<title>Heat</title>",
            "<html lang=\"en\">",
            "Introduction",
            "data:image/png;base64,",
            "<svg class=\"formula\"",
            "(1)",
            "Figure 1",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
        assert!(
            !html.contains("<script")
                && !html.contains("Speak slowly")
                && !html.contains("src=\"http")
        );
    }
    let mut body = export("html", "document", document);
    body["inputs"]["include_speaker_notes"] = json!(true);
    let result = bench.run(&body).await;
    let (_, html) = bench.fetch(&result, "html").await;
    assert!(String::from_utf8(html).unwrap().contains("Speak slowly"));
}

/// Section 7.3 of the contract as it is written, with a document: it names no `target`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_export_of_the_contract_needs_no_target() {
    let bench = Bench::start().await;
    let body = json!({
        "schema_version": "1.0",
        "job_id": uuid(9),
        "job_type": "document_export",
        "workspace_id": uuid(1),
        "project_id": uuid(2),
        "document_id": uuid(3),
        "document_revision_id": uuid(4),
        "execution_key": "sha256:...",
        "inputs": {
            "export_format": "pdf",
            "view_mode": "slide",
            "include_speaker_notes": false,
            "document": {"title": "T", "blocks": [{"type": "heading", "level": 1, "text": "One"}]},
        },
        "output_spec": {"formats": ["pdf"]},
    });
    let result = bench.run(&body).await;
    let (_, pdf) = bench.fetch(&result, "pdf").await;
    assert!(pdf.starts_with(b"%PDF-"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thumbnails_have_exactly_the_size_that_was_asked_for() {
    let bench = Bench::start().await;
    let result = bench.run(&formula("x+y")).await;
    let (png, _) = bench.fetch(&result, "png").await;
    let result = bench.run(&export("pdf", "document", json!({"title": "T", "blocks": []}))).await;
    let (pdf, _) = bench.fetch(&result, "pdf").await;
    let object = json!({"type": "equation", "content": {"format": "latex", "value": "x"}});
    for (source, value) in [
        ("digest", png["digest"].clone()),
        ("digest", pdf["digest"].clone()),
        ("document", json!({"title": "T", "blocks": [{"type": "text", "text": "Hello"}]})),
        ("object", object),
    ] {
        for (fit, width, height) in [("contain", 120, 90), ("cover", 64, 200)] {
            let mut inputs = json!({"width": width, "height": height, "fit": fit});
            inputs[source] = value.clone();
            let result = bench
                .run(&payload("thumbnail_generate", inputs, json!({"formats": ["png"]})))
                .await;
            let (artifact, png) = bench.fetch(&result, "png").await;
            assert_eq!(png_size(&png), (width, height), "{source} {fit}");
            assert_eq!(artifact["metadata"]["width"], width);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_sources_are_errors_of_the_user_with_their_place() {
    let bench = Bench::start().await;
    let error = bench.failed(&formula("a +\n\\frac{b}{c")).await;
    assert_eq!(
        (&error["category"], &error["code"]),
        (&json!("USER_CODE_ERROR"), &json!("LATEX_ERROR")),
        "{error}"
    );
    assert_eq!(error["message"], r"missing } after \frac");
    assert_eq!(
        (&error["details"]["line"], &error["details"]["column"]),
        (&json!(2), &json!(9)),
        "{error}"
    );
    let error = bench.failed(&content("typst", "first line\n#foo()")).await;
    assert_eq!(
        (&error["code"], &error["details"]["line"]),
        (&json!("LATEX_ERROR"), &json!(2)),
        "{error}"
    );
    let block = |block: Json| json!({"blocks": [{"type": "divider"}, block]});
    let result = bench.run(&formula("x")).await;
    let digest = bench.fetch(&result, "png").await.0["digest"].clone();
    for (document, block, line, column) in [
        (block(json!({"type": "equation", "latex": r"\foo", "id": "e1"})), "e1", 1, 1),
        (block(json!({"type": "text", "text": "one\ntwo $\\bar$"})), "1", 2, 6),
        (block(json!({"type": "text", "text": "one <b>two</b>"})), "1", 1, 5),
        // Braces that are not balanced: what reads Markdown sees no formula there.
        (block(json!({"type": "text", "text": r"b $\frac{1$ c"})), "1", 1, 9),
        (block(json!({"type": "text", "text": "x\n\ny $a}$ z"})), "1", 3, 5),
        (block(json!({"type": "text", "text": r"x $$\frac{1$$ y"})), "1", 1, 10),
        // Every text of a block is a source.
        (block(json!({"type": "heading", "level": 1, "text": r"On $\foo$"})), "1", 1, 5),
        (block(json!({"type": "list", "ordered": false, "items": ["a", r"b $\foo$"]})), "1", 1, 4),
        (block(json!({"type": "table", "rows": [["a", r"$\foo$"]]})), "1", 1, 2),
        (block(json!({"type": "table", "header": [r"$\foo$"], "rows": [["a"]]})), "1", 1, 2),
        (block(json!({"type": "table", "rows": [["a"]], "caption": r"of $\foo$"})), "1", 1, 5),
        (
            block(json!({"type": "figure", "digest": digest, "caption": r"a plot of $\foo$"})),
            "1",
            1,
            12,
        ),
        (block(json!({"type": "quote", "text": "one\n$\\foo$"})), "1", 2, 2),
        (block(json!({"type": "text", "text": "- one\n- two $\\foo$"})), "1", 2, 8),
        (block(json!({"type": "text", "text": "| a |\n|---|\n| $\\foo$ |"})), "1", 3, 4),
        // References.
        (block(json!({"type": "text", "text": "one\nsee [](#nope)"})), "1", 2, 5),
        (
            json!({"blocks": [{"type": "equation", "latex": "x", "label": "e"},
                {"type": "equation", "latex": "y", "label": "e", "id": "second"}]}),
            "second",
            1,
            1,
        ),
    ] {
        for format in ["pdf", "html"] {
            let error = bench.failed(&export(format, "document", document.clone())).await;
            assert_eq!(
                (&error["category"], &error["code"]),
                (&json!("USER_CODE_ERROR"), &json!("LATEX_ERROR")),
                "{error} for {document}"
            );
            let details = &error["details"];
            assert_eq!(
                (&details["block"], &details["line"], &details["column"]),
                (&json!(block), &json!(line), &json!(column)),
                "{error} for {document}"
            );
        }
    }
    let text = json!({"blocks": [{"type": "text", "text": r"b $\frac{1$ c"}]});
    let error = bench.failed(&export("pdf", "document", text)).await;
    assert_eq!(error["message"], r"missing } after \frac");
    // A dollar sign that begins no formula is a dollar sign.
    let text = r"It costs $5 and $6, or {$7 or $8}, \$9{ and \$10, `$a{$`, and $ {a $ b.";
    let document = json!({"blocks": [{"type": "text", "text": text}]});
    let result = bench.run(&export("html", "document", document)).await;
    let (_, html) = bench.fetch(&result, "html").await;
    let html = String::from_utf8(html).unwrap();
    assert!(html.contains("costs $5 and $6, or {$7 or $8}, $9{ and $10,"), "{html}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_payload_shows_to_be_wrong_is_refused_without_a_job() {
    let bench = Bench::start().await;
    let jobs = {
        bench.run(&formula("x")).await;
        bench.client.job_count().await
    };
    let mut gif = formula("x");
    gif["output_spec"]["formats"] = json!(["gif"]);
    let option = |name: &str, value: Json| {
        let mut body = formula("x");
        body["output_spec"]["options"] = json!({name: value});
        body
    };
    let mut shown = formula("x");
    shown["inputs"]["object"]["content"]["display"] = json!("yes");
    let block = |block: Json| export("pdf", "slide", json!({"blocks": [block]}));
    let mut notes = export("pdf", "slide", json!({"blocks": []}));
    notes["inputs"]["include_speaker_notes"] = json!("yes");
    let thumbnail = |width: u32, fit: &str, more: Json| {
        let mut inputs = json!({"width": width, "height": 16, "fit": fit});
        for (name, value) in more.as_object().unwrap() {
            inputs[name] = value.clone();
        }
        payload("thumbnail_generate", inputs, json!({"formats": ["png"]}))
    };
    let digest = json!({"digest": format!("sha256:{}", "0".repeat(64))});
    for (body, pointer) in [
        (option("scale", json!(9)), "/output_spec/options/scale"),
        (option("scale", json!(0.5)), "/output_spec/options/scale"),
        (option("color", json!("red")), "/output_spec/options/color"),
        (option("background", json!(7)), "/output_spec/options/background"),
        (option("font_size", json!("12")), "/output_spec/options/font_size"),
        (option("dpi", json!(300)), "/output_spec/options/dpi"),
        (shown, "/inputs/object/content/display"),
        (notes, "/inputs/include_speaker_notes"),
        (
            block(json!({"type": "heading", "level": 9, "text": "x"})),
            "/inputs/document/blocks/0/level",
        ),
        (block(json!({"type": "figure", "digest": "x"})), "/inputs/document/blocks/0/digest"),
        (block(json!({"type": "table", "rows": [["a"], 7]})), "/inputs/document/blocks/0/rows/1"),
        (block(json!({"type": "list", "items": [{}]})), "/inputs/document/blocks/0/items/0"),
        (block(json!("text")), "/inputs/document/blocks/0"),
        (export("pdf", "slide", json!({"title": 7, "blocks": []})), "/inputs/document/title"),
        (
            export("pdf", "slide", json!({"authors": "me", "blocks": []})),
            "/inputs/document/authors",
        ),
        (export("pdf", "slide", json!({"lang": "english", "blocks": []})), "/inputs/document/lang"),
        (export("pdf", "slide", Json::Null), "/inputs/document"),
        (thumbnail(15, "cover", digest.clone()), "/inputs/width"),
        (thumbnail(2049, "cover", digest.clone()), "/inputs/width"),
        (thumbnail(16, "stretch", digest), "/inputs/fit"),
        (thumbnail(16, "cover", json!({})), "/inputs"),
        (content("mermaid", "graph TD"), "/inputs/object/content/format"),
        (gif, "/output_spec/formats/0"),
        (export("docx", "document", json!({"blocks": []})), "/inputs/export_format"),
        (export("pdf", "poster", json!({"blocks": []})), "/inputs/view_mode"),
        (
            export("pdf", "slide", json!({"blocks": [{"type": "video"}]})),
            "/inputs/document/blocks/0/type",
        ),
        (
            export("pdf", "slide", json!({"blocks": [{"type": "text", "text": 7}]})),
            "/inputs/document/blocks/0/text",
        ),
    ] {
        let reply = bench.client.post("/contract/v1/jobs", &body).await;
        assert_eq!(reply.status(), 400, "{pointer}: {}", reply.text());
        let text = reply.text();
        assert!(
            text.contains("VALIDATION_ERROR")
                && text.contains(&format!("\"pointer\":\"{pointer}\"")),
            "{text}"
        );
    }
    assert_eq!(bench.client.job_count().await, jobs);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_figure_that_does_not_exist_or_is_of_another_owner_is_missing() {
    let bench = Bench::start().await;
    let figure = |digest: &str| {
        export("pdf", "document", json!({"blocks": [{"type": "figure", "digest": digest}]}))
    };
    let nobody = format!("sha256:{}", "0".repeat(64));
    let token = std::process::Command::new(binary())
        .args(["token", "create", "--subject", "other", "--data"])
        .arg(bench.folder.path().join("data"))
        .output()
        .unwrap();
    let token = String::from_utf8(token.stdout).unwrap();
    let other = Client::with_token(bench.venue.address, token.trim());
    let dataset = bench.upload(&other, b"data of another owner").await;
    let job = bench.submit_as(&other, &formula("theirs")).await;
    let result = bench.ended_as(&other, &job).await;
    let artifact = result["artifacts"][0]["digest"].as_str().unwrap_or_else(|| panic!("{result}"));
    let thumbnail = json!({"digest": artifact, "width": 16, "height": 16});
    for body in [
        figure(&nobody),
        figure(&dataset),
        figure(artifact),
        payload("thumbnail_generate", thumbnail, json!({"formats": ["png"]})),
    ] {
        let error = bench.failed(&body).await;
        assert_eq!(
            (&error["category"], &error["code"]),
            (&json!("DEPENDENCY_ERROR"), &json!("FIGURE_MISSING")),
            "{error}"
        );
    }
}

/// A PNG that says to have this many pixels a side.
fn huge_png(side: u32) -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    png.extend([side.to_be_bytes(), side.to_be_bytes()].concat());
    png.extend([8, 6, 0, 0, 0]);
    let mut crc = u32::MAX;
    for byte in &png[12..] {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    png.extend((!crc).to_be_bytes());
    png.extend(b"\0\0\0\0IDAT\x35\xaf\x06\x1e\0\0\0\0IEND\xae\x42\x60\x82");
    png
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_no_end_reaches_a_limit() {
    let bench = Bench::start().await;
    let image = bench.upload(&bench.client, &huge_png(30_000)).await;
    // Its sides are short enough, and 324 MB are too much.
    let large = bench.upload(&bench.client, &huge_png(9_000)).await;
    let drawing = |inner: &str| {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" width=\"9\" height=\"9\">{inner}</svg>"
        )
    };
    // Ten copies of ten copies, and so on: 10^12 rectangles.
    let mut copies = "<g id=\"g0\"><rect width=\"1\" height=\"1\"/></g>".to_owned();
    for level in 1..=12 {
        let uses = format!("<use xlink:href=\"#g{}\"/>", level - 1).repeat(10);
        copies.push_str(&format!("<g id=\"g{level}\">{uses}</g>"));
    }
    let copies = bench.upload(&bench.client, drawing(&copies).as_bytes()).await;
    let thumbnail = |digest: &str| {
        let inputs = json!({"digest": digest, "width": 16, "height": 16});
        payload("thumbnail_generate", inputs, json!({"formats": ["png"]}))
    };
    let text = |text: String| {
        export("pdf", "document", json!({"blocks": [{"type": "text", "text": text}]}))
    };
    let rows: Vec<Json> = (0..100_000).map(|number| json!([number])).collect();
    for body in [
        formula(r"\def\a{\a\a}\a"),
        formula(&format!("{}x{}", "{".repeat(10_000), "}".repeat(10_000))),
        formula(&format!("{}x{}", r"\frac{1}{".repeat(2_000), "}".repeat(2_000))),
        content("typst", "#let f(n) = f(n + 1)\n#f(1)"),
        content("typst", "#let s = \"x\" * 100000000\n#for i in range(100) { s = s + s }\n#s"),
        export("pdf", "document", json!({"blocks": [{"type": "table", "rows": rows}]})),
        formula(&r"\hat".repeat(5_000)),
        formula(&format!("{}x{}", r"\text{".repeat(5_000), "}".repeat(5_000))),
        content("typst", "#let x = 1\n#while x > 0 { x = 1 }"),
        content("typst", &format!("{}x{}", "#[".repeat(10_000), "]".repeat(10_000))),
        content("typst", "#range(10000000000).len()"),
        text(format!("{} x", ">".repeat(5_000))),
        text(format!("${}x{}$", "{".repeat(5_000), "}".repeat(5_000))),
        export("html", "document", json!({"blocks": [{"type": "figure", "digest": large}]})),
        thumbnail(&image),
        thumbnail(&large),
        export("pdf", "document", json!({"blocks": [{"type": "figure", "digest": image}]})),
        export("pdf", "document", json!({"blocks": [{"type": "figure", "digest": copies}]})),
        export("html", "document", json!({"blocks": [{"type": "figure", "digest": copies}]})),
    ] {
        let error = bench.failed(&body).await;
        let shown = body.to_string();
        assert_eq!(
            error["category"],
            "RESOURCE_LIMIT",
            "{error} for {}",
            &shown[..shown.len().min(400)]
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_reads_no_file_sends_nothing_and_sees_no_time() {
    let bench = Bench::start().await;
    let svg = |inner: &str| {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" width=\"9\" height=\"9\">{inner}</svg>"
        )
    };
    let linked = bench
        .upload(&bench.client, svg("<image xlink:href=\"file:///etc/passwd\"/>").as_bytes())
        .await;
    let entity = format!(
        "<!DOCTYPE svg [<!ENTITY x SYSTEM \"file:///etc/passwd\">]>{}",
        svg("<text>&x;</text>")
    );
    let entity = bench.upload(&bench.client, entity.as_bytes()).await;
    let mut drawings = vec![linked, entity];
    for inner in [
        "<image href=\"http://192.0.2.1/x.png\"/>",
        "<image href = '/etc/passwd'/>",
        "<use href=\"other.svg#a\"/>",
        "<style>@import url(\"http://192.0.2.1/x.css\");</style>",
        "<rect width=\"9\" height=\"9\" fill=\"url(http://192.0.2.1/x#a)\"/>",
        "<script>fetch('http://192.0.2.1')</script>",
        "<foreignObject><p>x</p></foreignObject>",
    ] {
        drawings.push(bench.upload(&bench.client, svg(inner).as_bytes()).await);
    }
    let figure = |digest: &str| {
        export("pdf", "document", json!({"blocks": [{"type": "figure", "digest": digest}]}))
    };
    let thumbnail = |digest: &str| {
        let inputs = json!({"digest": digest, "width": 16, "height": 16});
        payload("thumbnail_generate", inputs, json!({"formats": ["png"]}))
    };
    let drawn = drawings.iter().flat_map(|digest| [figure(digest), thumbnail(digest)]);
    let text = |text: &str| {
        export("html", "document", json!({"blocks": [{"type": "text", "text": text}]}))
    };
    let bodies = [
        formula(r"\input{/etc/passwd}"),
        formula(r"\include{/etc/passwd}"),
        formula(r"\openin1=/etc/passwd"),
        formula(r"\includegraphics{/etc/passwd}"),
        formula(r"\usepackage{x}"),
        formula(r"\csname input\endcsname"),
        formula(r"\the\time"),
        formula(r"\today"),
        formula(r"\text{\input{/etc/passwd}}"),
        text("a $\\input{/etc/passwd}$"),
        content("typst", "#eval(\"read(\\\"/etc/passwd\\\")\")"),
        content("typst", "#json(\"/etc/passwd\")"),
        content("typst", "#xml(\"/etc/passwd\")"),
        content("typst", "#csv(\"/etc/passwd\")"),
        content("typst", "#bibliography(\"/etc/passwd\")"),
        content("typst", "#import \"http://192.0.2.1/x.typ\": *"),
        content("typst", "#image(\"http://192.0.2.1/x.png\")"),
        formula(r"\immediate\write18{id}"),
        content("typst", "#read(\"/etc/passwd\")"),
        content("typst", "#read(\"../../../../etc/passwd\")"),
        content("typst", "#import \"/etc/passwd\": *"),
        content("typst", "#import \"@preview/cetz:0.3.0\": *"),
        content("typst", "#include \"main.typ\""),
        content("typst", "#image(\"/etc/hostname\")"),
        content("typst", "#plugin(\"/bin/sh\")"),
        content("typst", "#datetime.today().display()"),
        export(
            "pdf",
            "document",
            json!({"blocks": [{"type": "text", "text": "![x](file:///etc/passwd)"}]}),
        ),
        export(
            "html",
            "document",
            json!({"blocks": [{"type": "text", "text": "<script>1</script>"}]}),
        ),
        export(
            "html",
            "document",
            json!({"blocks": [{"type": "text", "text": "[x](javascript:alert(1))"}]}),
        ),
    ];
    for body in drawn.chain(bodies) {
        let error = bench.failed(&body).await;
        let is_refused =
            error["category"] == "USER_CODE_ERROR" || error["category"] == "SANDBOX_VIOLATION";
        assert!(is_refused, "{error} for {body}");
        assert!(!error.to_string().contains("root:"), "{error}");
    }
}

/// A source that takes this many steps.
fn slow(steps: u32) -> Json {
    content("typst", &format!("#for i in range({steps}) {{ for j in range(1000) {{ }} }}\nx"))
}

/// The processes below a process, with the CPU time that each has used, in ticks.
fn descendants(root: u32) -> Vec<(u32, u64)> {
    let stat = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program, in parentheses, may contain anything.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some((u32::try_from(number(1)?).ok()?, number(11)? + number(12)?))
    };
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let all: Vec<(u32, (u32, u64))> = pids.filter_map(|pid| Some((pid, stat(pid)?))).collect();
    let mut found = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for (pid, (_, used)) in all.iter().filter(|(_, (above, _))| *above == parent) {
            found.push((*pid, *used));
            parents.push(*pid);
        }
    }
    found
}

/// The process below a venue that works: the first that uses a fifth of a second more than it had.
async fn busy_process(venue: u32) -> u32 {
    let before: std::collections::HashMap<u32, u64> = descendants(venue).into_iter().collect();
    let started = tokio::time::Instant::now();
    loop {
        let works = |(pid, used): &(u32, u64)| *used >= before.get(pid).unwrap_or(&0) + 20;
        if let Some((pid, _)) = descendants(venue).into_iter().find(works) {
            return pid;
        }
        assert!(started.elapsed() < TIMEOUT, "nothing works");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_can_be_cancelled_while_it_renders() {
    let bench = Bench::start().await;
    let job = bench.submit(&slow(1_000_000)).await;
    let path = format!("/contract/v1/jobs/{}", job["job_id"].as_str().unwrap());
    let started = tokio::time::Instant::now();
    while bench.client.get(&path).await.json()["status"] != "RUNNING" {
        assert!(started.elapsed() < TIMEOUT);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let worker = busy_process(bench.venue.id()).await;
    bench.client.post(&format!("{path}/cancel"), &json!({})).await;
    assert_eq!(bench.ended(&job).await["status"], "CANCELLED");
    // The process that renders is gone long before it would have ended, and another one is there.
    let cancelled = tokio::time::Instant::now();
    while descendants(bench.venue.id()).iter().any(|(pid, _)| *pid == worker) {
        assert!(cancelled.elapsed() < Duration::from_secs(10), "process {worker} still works");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(bench.run(&formula("x")).await["status"], "SUCCEEDED");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_survives_the_death_of_its_venue() {
    let mut bench = Bench::start().await;
    let job = bench.submit(&slow(2_000)).await;
    let path = format!("/contract/v1/jobs/{}", job["job_id"].as_str().unwrap());
    let started = tokio::time::Instant::now();
    while bench.client.get(&path).await.json()["status"] == "QUEUED" {
        assert!(started.elapsed() < TIMEOUT);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let address = bench.venue.address;
    let other = bench.folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let dead = std::mem::replace(&mut bench.venue, start_at(FREE, &other).await);
    dead.kill().await;
    bench.venue = start_at(address, bench.folder.path()).await;
    let result = bench.ended(&job).await;
    assert_eq!(result["status"], "SUCCEEDED", "{result}");
    bench.fetch(&result, "svg").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_render_export_and_make_thumbnails() {
    let bench = Bench::start().await;
    bench.run(&formula("x")).await;
    let operation = async |name: &str, input: Json| {
        let id = bench.client.invoked(name, input, "COMPLETE").await;
        bench.client.job(&id).await["output"]["artifacts"].clone()
    };
    let rendered = operation("exec:render", json!({"latex": "x^2", "formats": ["png"]})).await;
    assert_eq!(
        (&rendered[0]["format"], &rendered[0]["metadata"]["alt"]),
        (&json!("png"), &json!("x^2")),
        "{rendered}"
    );
    let block = json!({"type": "figure", "digest": rendered[0]["digest"], "caption": "x squared"});
    let exported =
        operation("exec:export", json!({"document": {"title": "T", "blocks": [block]}})).await;
    assert_eq!(exported[0]["format"], "pdf", "{exported}");
    let input = json!({"digest": exported[0]["digest"], "width": 100, "height": 141});
    let thumbnail = operation("exec:thumbnail", input).await;
    assert_eq!(thumbnail[0]["metadata"]["height"], 141, "{thumbnail}");
}

/// The orchestration of the guide.
fn example() -> Json {
    let guide = include_str!("../../docs/guides/rendering.md");
    let section = guide.split("## From a cell to a PDF").nth(1).unwrap();
    let block = section.split("```json").nth(1).unwrap().split("```").next().unwrap();
    serde_json::from_str(block).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_of_the_guide_puts_the_plot_of_a_cell_into_a_pdf() {
    let bench = Bench::start().await;
    bench.run(&formula("x")).await;
    let asset = bench.client.post("/api/v1/assets", &example()).await.expect(201).json();
    let job = bench.client.invoked(asset.as_str().unwrap(), json!({}), "COMPLETE").await;
    let output = &bench.client.job(&job).await["output"]["pdf"];
    assert_eq!(
        (&output["format"], &output["metadata"]["title"]),
        (&json!("pdf"), &json!("Results"))
    );
    assert_eq!(output["metadata"]["standard"], "PDF/UA-1", "{output}");
}
