//! The way into the child's code for the fuzz targets, which must see crashes rather than have them contained.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use starlark::PrintHandler;

use crate::child::program;
use crate::protocol::{Meta, Request, Task};

struct Quiet;

impl PrintHandler for Quiet {
    fn println(&self, _text: &str) -> starlark::Result<()> {
        Ok(())
    }
}

/// Runs a program in this process, without the limits that only a process of its own can have.
pub fn evaluate(
    files: BTreeMap<String, String>,
    spec: Box<RawValue>,
    config: Box<RawValue>,
) -> Result<String, String> {
    let request = Request {
        task: Task::Compose,
        files,
        spec,
        config,
        meta: Meta::default(),
    };
    match program::run(&request, &Quiet) {
        Ok(composed) => serde_json::to_string(&composed).map_err(|err| err.to_string()),
        Err(program::Failure::Refused(text) | program::Failure::OverLimit(text)) => Err(text),
    }
}
