//! What a payload shows to be wrong, and where.

use super::*;

fn read(job_type: &str, inputs: &str, spec: &str) -> Result<RenderPlan, ContractError> {
    let text = format!(r#"{{"job_type":"{job_type}","inputs":{inputs},"output_spec":{spec}}}"#);
    RenderPlan::read(&json::read(text.as_bytes()).unwrap())
}

fn pointer(error: &ContractError) -> String {
    let found = error.details.iter().find(|(name, _)| *name == "pointer");
    found.and_then(|(_, value)| value.to_text()).unwrap_or_default().into_owned()
}

const FORMULA: &str = r#"{"object":{"type":"equation","content":{"format":"latex","value":"x"}}}"#;

#[test]
fn a_formula_is_a_request_of_the_renderer() {
    let plan = read(
        "object_render",
        FORMULA,
        r##"{"formats":["svg","png"],"options":{"scale":3,"color":"#123456"}}"##,
    )
    .unwrap();
    for part in [
        r#""task":"render""#,
        r#""source":"x""#,
        r#""display":true"#,
        r#""formats":["svg","png"]"#,
        r#""scale":3"#,
    ] {
        assert!(plan.request.contains(part), "{part} in {}", plan.request);
    }
}

#[test]
fn wrong_members_are_named_by_pointer() {
    let document =
        |block: &str| format!(r#"{{"document":{{"blocks":[{{"type":"divider"}},{block}]}}}}"#);
    let cases = [
        (
            "object_render",
            FORMULA.replace("latex", "mermaid"),
            "{}",
            "/inputs/object/content/format",
        ),
        ("object_render", FORMULA.replace("\"x\"", "7"), "{}", "/inputs/object/content/value"),
        ("object_render", FORMULA.to_owned(), r#"{"formats":["gif"]}"#, "/output_spec/formats/0"),
        (
            "object_render",
            FORMULA.to_owned(),
            r#"{"options":{"scale":9}}"#,
            "/output_spec/options/scale",
        ),
        (
            "object_render",
            FORMULA.to_owned(),
            r#"{"options":{"dpi":9}}"#,
            "/output_spec/options/dpi",
        ),
        (
            "object_render",
            FORMULA.to_owned(),
            r#"{"options":{"color":"red"}}"#,
            "/output_spec/options/color",
        ),
        ("document_export", "{}".to_owned(), "{}", "/inputs/document"),
        (
            "document_export",
            r#"{"export_format":"docx"}"#.to_owned(),
            "{}",
            "/inputs/export_format",
        ),
        ("document_export", r#"{"view_mode":"poster"}"#.to_owned(), "{}", "/inputs/view_mode"),
        (
            "document_export",
            document(r#"{"type":"video"}"#),
            "{}",
            "/inputs/document/blocks/1/type",
        ),
        (
            "document_export",
            document(r#"{"type":"heading","level":9,"text":""}"#),
            "{}",
            "/inputs/document/blocks/1/level",
        ),
        (
            "document_export",
            document(r#"{"type":"figure","digest":"x"}"#),
            "{}",
            "/inputs/document/blocks/1/digest",
        ),
        (
            "document_export",
            document(r#"{"type":"table","rows":[["a"],7]}"#),
            "{}",
            "/inputs/document/blocks/1/rows/1",
        ),
        (
            "document_export",
            document(r#"{"type":"table","rows":[["a",{}]]}"#),
            "{}",
            "/inputs/document/blocks/1/rows/0/1",
        ),
        (
            "document_export",
            document(r#"{"type":"list","items":["a",[]]}"#),
            "{}",
            "/inputs/document/blocks/1/items/1",
        ),
        (
            "thumbnail_generate",
            r#"{"width":8,"height":20,"digest":"x"}"#.to_owned(),
            "{}",
            "/inputs/width",
        ),
        ("thumbnail_generate", r#"{"width":20,"height":20}"#.to_owned(), "{}", "/inputs"),
        (
            "thumbnail_generate",
            r#"{"width":20,"height":20,"digest":"x"}"#.to_owned(),
            "{}",
            "/inputs/digest",
        ),
    ];
    for (job_type, inputs, spec, expected) in cases {
        let error = read(job_type, &inputs, spec).expect_err(expected);
        assert_eq!(pointer(&error), expected, "{}", error.message);
        assert_eq!(error.category, super::super::Category::ValidationError);
    }
}

#[test]
fn figures_are_listed_once() {
    let digest = super::super::read::digest_of(b"x");
    let figure = format!(r#"{{"type":"figure","digest":"{digest}"}}"#);
    let inputs = format!(
        r#"{{"document":{{"title":"T","authors":["A"],"lang":"de","blocks":[{figure},{figure}]}}}}"#
    );
    assert_eq!(read("document_export", &inputs, "{}").unwrap().images, [digest]);
}

#[test]
fn operations_have_payloads_of_their_own() {
    let input = |text: &str| json::read(text.as_bytes()).unwrap().as_map().unwrap().clone();
    let payload =
        payload_of_rendering(JobType::ObjectRender, &input(r#"{"latex":"x","formats":["png"]}"#))
            .unwrap();
    assert!(RenderPlan::read(&payload.into()).unwrap().request.contains(r#""formats":["png"]"#));
    assert!(payload_of_rendering(JobType::ObjectRender, &input("{}")).is_err());
    let payload = payload_of_rendering(
        JobType::DocumentExport,
        &input(r#"{"document":{"blocks":[]},"format":"html"}"#),
    )
    .unwrap();
    assert!(RenderPlan::read(&payload.into()).unwrap().request.contains(r#""format":"html""#));
}
