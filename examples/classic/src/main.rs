//! A worker as a team of its own would write it: four providers, one `main`.
//!
//! `app` (version 1) composes databases and services and rolls their addresses up; `database` (version 1) and `service` (versions 1 and 2)
//! are leaves whose outside world is a directory of files. Of the tree it lies in, the crate depends on `converge-sdk` alone and inherits
//! nothing, so it can be copied elsewhere as it is.

mod app;
mod database;
mod place;
mod service;

use std::process::ExitCode;
use std::sync::Arc;

use converge_sdk::serve;

#[tokio::main]
async fn main() -> ExitCode {
    let served = serve(vec![
        Arc::new(app::App),
        Arc::new(database::Database),
        Arc::new(service::ServiceV1),
        Arc::new(service::ServiceV2),
    ]);
    match served.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(error.exit_code())
        }
    }
}
