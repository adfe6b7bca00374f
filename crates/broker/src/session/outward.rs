//! What a session sends: tasks behind their configs, and what it gives back when its stream is over.

use super::*;

impl Session<'_> {
    pub(super) async fn send(&mut self, tasks: Vec<Task>) -> Result<(), Status> {
        if u32::try_from(tasks.len()).is_ok_and(|got| got >= self.asked) && self.asked > 0 {
            self.hungry = true;
        }
        let claims = tasks.iter().map(|task| ClaimRef {
            token: task.token,
            epoch: task.claim.epoch,
        });
        self.shared.leases.begin(claims);
        let mut items = Vec::with_capacity(tasks.len());
        let mut failed = None;
        for task in tasks {
            let claim = ClaimRef {
                token: task.token,
                epoch: task.claim.epoch,
            };
            let kv = task.claim.kv.clone();
            let sent = Sent {
                kv: kv.clone(),
                suspect: task.suspect,
                composes: matches!(task.claim.stage, Stage::Compose | Stage::Rollup),
            };
            self.held.insert(
                task.token,
                Held {
                    claim,
                    task: Some(sent),
                },
            );
            let is_behind = self
                .pairs
                .get(&kv)
                .is_some_and(|pair| pair.pushed != Some(task.default_config));
            let message = Item {
                message: WorkStreamServerMsg {
                    body: Some(Out::Task(convert::task(task))),
                },
                claim: Some(claim),
            };
            if is_behind {
                // Tasks before it keep their place; the config goes between.
                self.outbox.push(std::mem::take(&mut items));
                if let Err(status) = self.push_config(&kv).await {
                    failed.get_or_insert(status);
                }
            }
            items.push(message);
        }
        self.outbox.push(items);
        // Sent or not, every task is where `finish` finds it.
        failed.map_or(Ok(()), Err)
    }

    pub(super) async fn push_configs(&mut self) -> Result<(), Status> {
        let changed: Vec<_> = self
            .pairs
            .iter()
            .filter(|(_, pair)| pair.changed)
            .map(|(kv, _)| kv.clone())
            .collect();
        for kv in changed {
            self.push_config(&kv).await?;
        }
        Ok(())
    }

    /// Queues the current default of a pair; an empty one says that there is none.
    async fn push_config(&mut self, kv: &KindVersion) -> Result<(), Status> {
        let found = self.shared.store.config_default(kv).await;
        let found = found.map_err(|error| Status::unavailable(error.to_string()))?;
        let Some(pair) = self.pairs.get_mut(kv) else {
            return Ok(());
        };
        pair.pushed = Some(
            found
                .as_ref()
                .map_or(Digest::default(), |(config, _)| config.effective),
        );
        pair.changed = false;
        let (config, bundle) = found.map_or_else(Default::default, |(config, bundle)| {
            let bundle = bundle
                .map(|bundle| bytes::Bytes::copy_from_slice(&bundle.0))
                .unwrap_or_default();
            (config.spec.bytes().clone(), bundle)
        });
        let update = ProviderConfigUpdate {
            kind: kv.kind.to_string(),
            kind_version: kv.version,
            config,
            bundle,
        };
        let message = WorkStreamServerMsg {
            body: Some(Out::Config(update)),
        };
        self.outbox.push([Item {
            message,
            claim: None,
        }]);
        Ok(())
    }

    /// The stream is over: what was never handed to the transport is given back; a clean end of a drain gives back the rest.
    pub(super) async fn finish(&mut self, end: End) {
        let drained = matches!(end, End::HalfClosed) && self.shed_everything();
        let (status, word) = match end {
            End::HalfClosed => (None, "worker closed its side"),
            End::Broken => (None, "worker's stream broke"),
            End::Refused(status) => (Some(status), "stream ended"),
        };
        tracing::info!(worker = %self.identity, inflight = self.held.len(), drained, "{word}");
        let undelivered = self.outbox.end(status);
        let mut releases = vec![(undelivered, ReleaseReason::Undelivered)];
        if drained {
            let left = self
                .held
                .values()
                .map(|held| held.claim)
                .filter(|claim| self.shared.leases.is_live(claim));
            releases.push((left.collect(), ReleaseReason::Drained));
        }
        for (claims, reason) in releases {
            if claims.is_empty() {
                continue;
            }
            for claim in &claims {
                self.shared.leases.end(claim);
            }
            let release = Command::Release(Release {
                claims: claims.clone(),
                reason,
            });
            if let Some(Err(error)) = self.shared.store.transact(vec![release]).await.pop() {
                tracing::error!(%error, "claims could not be released; they end with their leases");
                self.shared.leases.begin(claims);
            }
        }
    }

    /// Whether every pair of the stream had said that it has no worker.
    fn shed_everything(&self) -> bool {
        self.entry.all_shed()
    }
}
