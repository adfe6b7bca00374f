//! The REST calls of the benches, over kept-alive connections.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use ureq::Agent;

/// One client; a thread has its own, so that connections are not shared.
pub(crate) struct Http {
    agent: Agent,
    api: String,
}

/// How long any one step of a call may take.
const LIMIT: Duration = Duration::from_secs(30);

impl Http {
    pub(crate) fn new(api: &str) -> Self {
        // Not `timeout_global`: under it every call starts a thread that looks the host up, and that is two wake-ups of what is measured.
        let agent = Agent::config_builder()
            .timeout_connect(Some(LIMIT))
            .timeout_send_request(Some(LIMIT))
            .timeout_send_body(Some(LIMIT))
            .timeout_recv_response(Some(LIMIT))
            .timeout_recv_body(Some(LIMIT))
            .build()
            .new_agent();
        Self {
            agent,
            api: format!("{api}/api/v1"),
        }
    }

    pub(crate) fn put(&self, path: &str, body: &Value) -> Result<()> {
        self.agent
            .put(format!("{}{path}", self.api))
            .send_json(body)
            .with_context(|| format!("PUT {path}"))?;
        Ok(())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<()> {
        let mut answer = self
            .agent
            .post(format!("{}{path}", self.api))
            .send_json(body)
            .with_context(|| format!("POST {path}"))?;
        // Read to the end, or the connection cannot be used again.
        answer
            .body_mut()
            .read_to_vec()
            .with_context(|| format!("POST {path}"))?;
        Ok(())
    }

    pub(crate) fn get(&self, path: &str) -> Result<Value> {
        self.agent
            .get(format!("{}{path}", self.api))
            .call()
            .with_context(|| format!("GET {path}"))?
            .body_mut()
            .read_json()
            .with_context(|| format!("GET {path}"))
    }
}
