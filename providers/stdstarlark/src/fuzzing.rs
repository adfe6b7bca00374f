//! The way into the child's code for the fuzz targets, which must see crashes rather than have them contained.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use starlark::PrintHandler;

use crate::child::program;
use crate::limits;
use crate::protocol::{Meta, Request, Task};

struct Quiet;

impl PrintHandler for Quiet {
    fn println(&self, _text: &str) -> starlark::Result<()> {
        Ok(())
    }
}

/// Runs a program in this process, without the limits that only a process of its own can have. A panic in it panics here.
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
    let run = move || match program::run(&request, &Quiet) {
        Ok(composed) => serde_json::to_string(&composed).map_err(|err| err.to_string()),
        Err(program::Failure::Refused(text) | program::Failure::OverLimit(text)) => Err(text),
    };
    let thread = std::thread::Builder::new()
        .stack_size(limits::STACK_BYTES)
        .spawn(run);
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        Err(err) => Err(err.to_string()),
    }
}
