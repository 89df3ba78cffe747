//! The environment `render`: this binary, executed again in the sandbox, renders one request and ends.
//!
//! The renderer is linked into this crate for its child side and for its version alone. The executor itself
//! never renders.

use std::fmt::Write as _;

use catena_sandbox::{Interpreter, Profile, Program, ProgramError};
use serde_json::{Map, Value};

use crate::environment::{Environment, Setup};

/// The child side.
struct Renderer;

impl Program for Renderer {
    fn warm(&self) {
        catena_render::warm();
    }

    fn rehearse(&self) {
        catena_render::rehearse();
    }

    fn run(&self, request: &Value) -> Result<String, ProgramError> {
        let image = |digest: &str| std::fs::read(format!("inputs/{digest}")).ok();
        let rendered = catena_render::render(request, &image).map_err(|error| ProgramError {
            code: error.kind.code().to_owned(),
            message: error.message,
            line: error.line,
            column: error.column,
            block: error.block,
        })?;
        let mut files = Map::new();
        for output in rendered.outputs {
            std::fs::write(&output.name, &output.bytes).map_err(|error| ProgramError {
                code: "RENDER_LIMIT".to_owned(),
                message: format!("{} could not be written: {error}", output.name),
                ..ProgramError::default()
            })?;
            files.insert(output.name, output.facts);
        }
        Ok(Value::Object(files).to_string())
    }
}

/// Runs the child side of the sandbox, if this process was started as one. Returns whether it was.
pub fn serve_child() -> Option<std::io::Result<()>> {
    catena_sandbox::native::is_child().then(|| catena_sandbox::native::serve(&Renderer))
}

/// The version of the environment: everything that decides what a source looks like.
fn version() -> String {
    let mut text = String::from("render@");
    for byte in &catena_render::fingerprint()[..6] {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Starts the environment. Fails with the reason.
pub(crate) fn start(setup: &Setup) -> Result<Environment, String> {
    let interpreter = Interpreter::this_binary().map_err(|error| error.to_string())?;
    let profile = Profile {
        name: "render".to_owned(),
        interpreter,
        has_site: false,
        packages: None,
        preload: Vec::new(),
    };
    Environment::start("render", version(), profile, setup)
}
