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

impl Http {
    pub(crate) fn new(api: &str) -> Self {
        let agent = Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(30)))
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
