//! The child process: limits first, then one run after the other until the parent closes the pipe.
//!
//! What must hold: no input is read before the limits stand; a run sees nothing of the run before; whatever a program
//! does, the worst that happens is that this process ends, and then the parent knows why from how it ended.

pub(crate) mod builtins;
pub(crate) mod diagnostic;
mod globals;
mod graph;
mod json_in;
mod json_out;
mod limit_self;
pub(crate) mod program;
mod recursion;
mod shape;
#[expect(
    unsafe_code,
    reason = "deriving ProvidesStaticType implements an unsafe marker trait; no unsafe block is here"
)]
mod value;

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::panic::{self, AssertUnwindSafe};

use starlark::PrintHandler;

use crate::limits;
use crate::protocol::{self, Request, Tag};
use limit_self::RunTimer;
use program::Failure;

/// Serves runs over stdin and stdout until stdin ends.
pub(crate) fn serve() -> Result<(), String> {
    // Most panics are caught and reported as answers. Of those that cannot be, the parent reads this text.
    panic::set_hook(Box::new(|info| {
        eprintln!("{}", payload_text(info.payload()))
    }));
    limit_self::hold_back_group_signals()?;
    let worker = std::thread::Builder::new()
        .name("starlark".into())
        .stack_size(limits::STACK_BYTES)
        .spawn(|| {
            limit_self::set()?;
            let mut timer = RunTimer::new()?;
            let mut input = io::stdin().lock();
            let output = RefCell::new(io::stdout().lock());
            write(&output, Tag::Ready, b"").map_err(|err| err.to_string())?;
            while let Some((tag, body)) =
                protocol::read_frame(&mut input).map_err(|err| err.to_string())?
            {
                if tag != Tag::Request
                    || !answer(&body, &output, &mut timer).map_err(|err| err.to_string())?
                {
                    break;
                }
            }
            Ok(())
        })
        .map_err(|err| format!("could not start the evaluation thread: {err}"))?;
    worker
        .join()
        .map_err(|_| "the evaluation thread panicked outside a run".to_owned())?
}

/// Runs one request and answers it; `false` when this process should take no further one.
fn answer(body: &[u8], output: &RefCell<impl Write>, timer: &mut RunTimer) -> io::Result<bool> {
    timer.start()?;
    let printer = Printer {
        output,
        lines: Cell::new(0),
    };
    let result = panic::catch_unwind(AssertUnwindSafe(|| {
        let request: Request = serde_json::from_slice(body).map_err(|err| {
            Failure::Refused(format!(
                "the evaluation process could not read its request: {err}"
            ))
        })?;
        program::run(&request, &printer)
    }));
    printer.finish()?;
    let keep = match result {
        Ok(Ok(mut composed)) => {
            composed.retire = limit_self::resident_bytes() > limits::RESIDENT_BYTES;
            write(output, Tag::Composed, &serde_json::to_vec(&composed)?)?;
            !composed.retire
        }
        Ok(Err(Failure::Refused(text))) => {
            write(output, Tag::Refused, text.as_bytes())?;
            true
        }
        // What went over a bound, or panicked, may have left memory behind: this process ends.
        Ok(Err(Failure::OverLimit(text))) => {
            write(output, Tag::OverLimit, text.as_bytes())?;
            false
        }
        Err(panic) => {
            write(output, Tag::OverLimit, panic_text(&*panic).as_bytes())?;
            false
        }
    };
    Ok(keep)
}

fn write(output: &RefCell<impl Write>, tag: Tag, body: &[u8]) -> io::Result<()> {
    protocol::write_frame(&mut *output.borrow_mut(), tag, body)
}

/// The interpreter panics where a value would be larger than it can be ("capacity overflow", "out of memory").
fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = payload_text(panic);
    if crate::pool::tells_of_memory(text) {
        return crate::pool::out_of_memory();
    }
    format!(
        "the program asked for more than the interpreter can do: {}",
        diagnostic::clip(text)
    )
}

fn payload_text(payload: &(dyn std::any::Any + Send)) -> &str {
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    owned
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

/// Sends printed lines as they come, within bounds.
struct Printer<'o, W> {
    output: &'o RefCell<W>,
    lines: Cell<usize>,
}

impl<W: Write> Printer<'_, W> {
    fn finish(&self) -> io::Result<()> {
        match self.lines.get().checked_sub(limits::PRINT_LINES) {
            Some(more) if more > 0 => write(
                self.output,
                Tag::Print,
                format!("({more} more lines)").as_bytes(),
            ),
            _ => Ok(()),
        }
    }
}

impl<W: Write> PrintHandler for Printer<'_, W> {
    fn println(&self, text: &str) -> starlark::Result<()> {
        let number = self.lines.get();
        self.lines.set(number.saturating_add(1));
        if number >= limits::PRINT_LINES {
            return Ok(());
        }
        let end = text.floor_char_boundary(limits::PRINT_BYTES);
        write(self.output, Tag::Print, &text.as_bytes()[..end]).map_err(starlark::Error::new_other)
    }
}
