//! What a program can call besides the language's own functions: `struct`, `print`, `fail`, `match` and `json`.
//!
//! Nothing here reads a clock, a file, an environment variable or a random number, so a program is a function of its
//! arguments. The interpreter's own `json` is left out: it panics on `1e400` and overflows the stack on deep values.

use std::cell::RefCell;
use std::collections::HashMap;

use globset::{GlobBuilder, GlobMatcher};
use starlark::environment::{Globals, GlobalsBuilder, LibraryExtension};
use starlark::values::{Heap, Value};

use super::json_in::{self, Plain};
use super::json_out::{self, Budget, Order};

/// Longest glob that is compiled.
const PATTERN_BYTES: usize = 1_000;
/// Compiled globs kept during one run.
const PATTERNS: usize = 256;

thread_local! {
    /// Globs of this run. Compiling costs far more than matching, and programs match in loops.
    static GLOBS: RefCell<HashMap<String, GlobMatcher>> = RefCell::default();
}

/// The names every file sees.
pub(crate) fn globals() -> Globals {
    GlobalsBuilder::extended_by(&[LibraryExtension::StructType, LibraryExtension::Print])
        .with(functions)
        .with_namespace("json", json)
        .build()
}

/// Forgets what the last run left; part of "no state leaks from one run to the next".
pub(crate) fn forget() {
    GLOBS.with_borrow_mut(HashMap::clear);
}

#[starlark::starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// Whether the whole of `s` matches the glob: `*` any characters, `?` one, `[a-z]` a class, `{a,b}` alternatives.
    fn r#match(
        #[starlark(require = pos)] pattern: &str,
        #[starlark(require = pos)] s: &str,
    ) -> starlark::Result<bool> {
        matches(pattern, s)
    }
}

fn matches(pattern: &str, text: &str) -> starlark::Result<bool> {
    if pattern.len() > PATTERN_BYTES {
        return Err(failure(format!(
            "match: the pattern has {} bytes; at most {PATTERN_BYTES} are taken",
            pattern.len()
        )));
    }
    GLOBS.with_borrow_mut(|globs| {
        if let Some(glob) = globs.get(pattern) {
            return Ok(glob.is_match(text));
        }
        let glob = GlobBuilder::new(pattern)
            .literal_separator(false)
            .backslash_escape(true)
            .build()
            .map_err(|err| failure(format!("match: {err}")))?
            .compile_matcher();
        let matched = glob.is_match(text);
        if globs.len() < PATTERNS {
            globs.insert(pattern.to_owned(), glob);
        }
        Ok(matched)
    })
}

/// What a builtin refuses.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Failure(String);

fn failure(message: String) -> starlark::Error {
    starlark::Error::new_native(Failure(message))
}

#[starlark::starlark_module]
fn json(builder: &mut GlobalsBuilder) {
    /// The value as JSON text, the members of objects sorted by key.
    fn encode<'v>(#[starlark(require = pos)] x: Value<'v>) -> starlark::Result<String> {
        json_out::write(x, Order::Sorted, &mut Budget::default())
            .map_err(|unfit| failure(format!("json.encode: x{} {}", unfit.path, unfit.problem)))
    }

    /// The value of JSON text, as dicts and lists.
    fn decode<'v>(
        #[starlark(require = pos)] x: &str,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        json_in::read(&Plain(heap), x)
            .map_err(|problem| failure(format!("json.decode: x{problem}")))
    }
}
