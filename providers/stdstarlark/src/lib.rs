//! `stdstarlark`: composes resources with a Starlark program that comes as data.
//!
//! The program is the bundle of the kind's providerconfig, a zip of `.star` files whose `compose.star` defines
//! `compose(spec, config)`. It can come from anyone: it is evaluated in child processes of the same binary which set
//! their own limits, so a program can end its own run and nothing else. See the README for the language.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! stdstarlark::enter_child_if_asked(); // before anything else in main: this process may be meant as a child
//! let providers = vec![stdstarlark::provider()?];
//! # let _ = providers; Ok(())
//! # }
//! ```
//!
//! Parts: `bundle` reads the archive, `protocol` is what parent and child say, `pool` keeps children and judges their
//! ends, `engine` puts them together, `provider` is the worker's side, `offline` the renderer's. All of `child` runs in
//! the child only.

mod bundle;
mod child;
mod engine;
pub mod limits;
mod offline;
mod pool;
mod protocol;
mod provider;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use converge_sdk::Provider;

pub use bundle::{Bundle, BundleError, ENTRY_POINT};
pub use engine::Engine;
pub use offline::{check_offline, compose_offline};
pub use protocol::Meta;
pub use provider::StarlarkProvider;

/// The kind this provider serves.
pub const KIND: &str = "stdstarlark";

/// The kind's manifest.
pub const MANIFEST: &str = include_str!("../stdstarlark.kind.json");

/// The only argument of a child process.
pub(crate) const CHILD_ARGUMENT: &str = "--stdstarlark-evaluate-stdin";

/// The provider, evaluating in children of this binary.
///
/// # Errors
/// When the path of the running binary cannot be found out.
pub fn provider() -> std::io::Result<Arc<dyn Provider>> {
    Ok(Arc::new(StarlarkProvider::new(Engine::of_this_binary()?)))
}

/// Becomes an evaluation process if this process was started as one, and then does not return.
///
/// Must be the first thing in `main`: a child sets limits and starts a thread with a large stack, and must not have
/// started a runtime, a logger or a connection before.
pub fn enter_child_if_asked() {
    engine::CAN_BE_CHILD.store(true, Ordering::Release);
    if std::env::args_os()
        .nth(1)
        .is_none_or(|argument| argument != CHILD_ARGUMENT)
    {
        return;
    }
    let code = match child::serve() {
        Ok(()) => 0,
        Err(message) => {
            eprintln!("{message}");
            70
        }
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "the caller's main must not go on; nothing here needs a destructor"
    )]
    std::process::exit(code);
}

/// For the fuzz target: parses, evaluates and checks one program in this process, for inputs that a fuzzer has bounded.
#[doc(hidden)]
pub mod fuzzing;
