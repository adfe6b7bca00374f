//! One stream: a worker's subscription, its free slots, its results.
//!
//! One loop owns everything. It reads messages while a commit is under way, so that what arrives meanwhile shares the next one: each
//! round of commands is the results that wait plus one claim for the slots they free. While the worker has nothing to do its claim stands
//! with the store, as a round that takes as long as it takes, and is taken back for any other. Invariants: at most `credit` tasks are out; a
//! pair's config is queued before the tasks claimed under it; after a commit failed nothing more is read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use converge_engine::command::{
    ClaimTasks, Command, Complete, Landed, Release, ReleaseReason, Reply, Task, TaskFailure,
};
use converge_engine::fleet::Member;
use converge_engine::model::{ClaimRef, Digest, LeaseToken};
use converge_engine::store::{Signals, Standing, TransactError};
use converge_types::ids::KindVersion;
use converge_types::phase::Stage;
use futures::FutureExt as _;
use prost::Message as _;
use tonic::{Status, Streaming};

use crate::activity::Activity;
use crate::convert;
use crate::generated::work_stream_client_msg::Body as In;
use crate::generated::work_stream_server_msg::Body as Out;
use crate::generated::{
    Interest, ProviderConfigUpdate, Subscribe, WorkHeartbeat, WorkStreamClientMsg,
    WorkStreamServerMsg,
};
use crate::outbox::{Item, Outbox};
use crate::registry::Entry;
use crate::service::{MAX_PAIRS, Shared, too_many_pairs};

mod outward;
#[cfg(test)]
mod tests;

/// How long the first message may take.
const SUBSCRIBE_WITHIN: Duration = Duration::from_secs(10);
/// Results taken into one round.
const MAX_BATCH: usize = 1_024;
/// Bytes of results that wait before nothing more is read.
const MAX_WAITING_BYTES: usize = 128 << 20;
/// Claims one message names: far more than a worker runs and keeps results of.
const MAX_NAMED: usize = 65_536;
/// So many of the odd messages of one stream are logged.
const ODD_LOGGED: u32 = 3;
/// How long bytes of one unfinished message keep the claims named before it alive.
const MAX_UNFINISHED: Duration = Duration::from_secs(600);

/// 128 unguessable bits, from the thread's generator: a claim takes one for each free slot, too many to ask the system for each.
pub(crate) fn random() -> u128 {
    rand::random()
}

/// Why the loop ended.
enum End {
    /// The worker half-closed.
    HalfClosed,
    /// The connection or the response stream broke.
    Broken,
    /// We end it.
    Refused(Status),
}

/// Runs one stream to its end.
pub(crate) async fn run(
    shared: &Shared,
    number: u64,
    identity: String,
    inbound: Streaming<WorkStreamClientMsg>,
    outbox: Outbox,
    activity: Activity,
) {
    let mut inbound = inbound;
    let subscribe = match first(&mut inbound).await {
        Ok(subscribe) => subscribe,
        Err(status) => {
            outbox.end(Some(status));
            return;
        }
    };
    if subscribe.kinds.len() > MAX_PAIRS {
        outbox.end(Some(too_many_pairs()));
        return;
    }
    let mut session = Session::new(shared, number, identity, outbox, activity, subscribe);
    let end = session.serve(&mut inbound).await;
    session.finish(end).await;
}

async fn first(inbound: &mut Streaming<WorkStreamClientMsg>) -> Result<Subscribe, Status> {
    match tokio::time::timeout(SUBSCRIBE_WITHIN, inbound.message()).await {
        Ok(Ok(Some(WorkStreamClientMsg {
            body: Some(In::Subscribe(subscribe)),
        }))) => Ok(subscribe),
        Ok(Ok(Some(_))) => Err(Status::invalid_argument(
            "the first message must be subscribe",
        )),
        Ok(Ok(None)) => Err(Status::invalid_argument(
            "the stream ended before subscribe",
        )),
        Ok(Err(status)) => Err(status),
        Err(_) => Err(Status::deadline_exceeded("no subscribe within 10 s")),
    }
}

/// A pair of this stream.
struct Served {
    ready: bool,
    /// Digest of the default config last queued; `None` before the first.
    pushed: Option<Digest>,
    changed: bool,
}

/// A task this stream has, as far as the broker knows.
struct Held {
    claim: ClaimRef,
    /// `None` for one that only the worker names.
    task: Option<Sent>,
}

/// A task that was sent on this stream.
struct Sent {
    kv: KindVersion,
    suspect: bool,
    composes: bool,
}

type Round<'s> = Pin<Box<dyn Future<Output = Vec<Result<Reply, TransactError>>> + Send + 's>>;

struct Session<'s> {
    shared: &'s Shared,
    identity: String,
    outbox: Outbox,
    activity: Activity,
    entry: Entry,
    credit: u32,
    pairs: BTreeMap<KindVersion, Served>,
    order: Vec<KindVersion>,
    held: HashMap<LeaseToken, Held>,
    named: Vec<ClaimRef>,
    last_message: Instant,
    waiting: Vec<Complete>,
    waiting_bytes: usize,
    /// Claims of the round that is under way, in the order of its commands.
    under_way: Vec<ClaimRef>,
    /// The round that is under way is a standing claim; takes it back.
    withdraw: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    asked: u32,
    /// Something may be claimable.
    hungry: bool,
    /// Messages that no worker of ours sends.
    odd: u32,
}

impl<'s> Session<'s> {
    fn new(
        shared: &'s Shared,
        number: u64,
        identity: String,
        outbox: Outbox,
        activity: Activity,
        subscribe: Subscribe,
    ) -> Self {
        let mut pairs = BTreeMap::new();
        let mut order = Vec::new();
        let mut wrong = Vec::new();
        for (at, kind) in subscribe.kinds.iter().enumerate() {
            let version = subscribe.kind_versions.get(at).copied().unwrap_or(1);
            match KindVersion::parse(kind, version) {
                Ok(kv) => {
                    if pairs
                        .insert(
                            kv.clone(),
                            Served {
                                ready: true,
                                pushed: None,
                                changed: true,
                            },
                        )
                        .is_none()
                    {
                        order.push(kv);
                    }
                }
                Err(error) => wrong.push(format!("{kind}/v{version}: {error}")),
            }
        }
        if let Some(first) = wrong.first() {
            tracing::warn!(worker = %identity, count = wrong.len(), first, "pairs nothing can have");
        }
        let credit = subscribe.max_inflight.min(shared.options.max_credit);
        let now_ms = shared.store.now_ms();
        let member = Member {
            identity: identity.clone(),
            pairs: order.iter().map(|kv| (kv.clone(), true)).collect(),
            credit,
            inflight: 0,
            connected_ms: now_ms,
            heartbeat_ms: now_ms,
        };
        let mut session = Self {
            shared,
            entry: shared.registry.enter(number, member),
            identity,
            outbox,
            activity,
            credit,
            pairs,
            order,
            held: HashMap::new(),
            named: Vec::new(),
            last_message: Instant::now(),
            waiting: Vec::new(),
            waiting_bytes: 0,
            under_way: Vec::new(),
            withdraw: None,
            asked: 0,
            hungry: true,
            odd: 0,
        };
        let resumed = subscribe.resumed.iter();
        let resumed: Vec<_> = resumed
            .filter_map(|task| convert::claim_ref(&task.lease_token, task.claim_epoch))
            .collect();
        session.name(resumed);
        tracing::info!(worker = %session.identity, credit, pairs = session.order.len(), "worker connected");
        session
    }

    async fn serve(&mut self, inbound: &mut Streaming<WorkStreamClientMsg>) -> End {
        let shared = self.shared;
        let mut signals = shared.store.subscribe();
        let mut round: Option<Round<'s>> = None;
        let mut naming = tokio::time::interval(shared.options.lease / 4);
        let outbox = self.outbox.clone();
        let mut closed = std::pin::pin!(outbox.closed());
        // Configs of all pairs go out before any task; messages sent right behind Subscribe (who is not ready) are read before it too.
        if let Err(status) = self.push_configs().await {
            return End::Refused(status);
        }
        while let Some(Ok(Some(message))) = inbound.message().now_or_never() {
            self.receive(message);
        }
        loop {
            if self.has_more_to_do() && self.withdraw_standing() {
                round = None;
            }
            if round.is_none() {
                if self.pairs.values().any(|pair| pair.changed)
                    && let Err(status) = self.push_configs().await
                {
                    return End::Refused(status);
                }
                round = self.next_round().or_else(|| self.stand());
            }
            let may_read = self.waiting.len() < MAX_BATCH && self.waiting_bytes < MAX_WAITING_BYTES;
            tokio::select! {
                biased;
                () = shared.shutdown.cancelled() => {
                    // A claim that is under way is made whoever waits for it: its task goes out or is given back.
                    let status = self.drain(round).await.err();
                    return End::Refused(status.unwrap_or_else(|| Status::unavailable("the broker is shutting down")));
                }
                () = shared.holding.cancelled(), if self.withdraw.is_some() => self.hungry = true,
                () = &mut closed => return self.broken(round).await,
                replies = async { match round.as_mut() { Some(round) => round.await, None => std::future::pending().await } } => {
                    round = None;
                    if let Err(status) = self.settle(replies).await {
                        return End::Refused(status);
                    }
                }
                message = inbound.message(), if may_read => match message {
                    Ok(Some(message)) => {
                        self.receive(message);
                        // What has arrived already shares the next round.
                        while self.waiting.len() < MAX_BATCH && self.waiting_bytes < MAX_WAITING_BYTES {
                            match inbound.message().now_or_never() {
                                Some(Ok(Some(message))) => self.receive(message),
                                Some(Ok(None)) => return self.half_closed(round).await,
                                Some(Err(_)) => return self.broken(round).await,
                                None => break,
                            }
                        }
                    }
                    Ok(None) => return self.half_closed(round).await,
                    Err(_) => return self.broken(round).await,
                },
                signalled = signals.next() => self.signalled(&signalled),
                _ = naming.tick() => self.name_while_receiving(),
            }
        }
    }

    /// Everything that was read still lands before the stream is over.
    async fn half_closed(&mut self, round: Option<Round<'s>>) -> End {
        match self.drain(round).await {
            Ok(()) => End::HalfClosed,
            Err(status) => End::Refused(status),
        }
    }

    async fn broken(&mut self, round: Option<Round<'s>>) -> End {
        match self.drain(round).await {
            Ok(()) => End::Broken,
            Err(status) => End::Refused(status),
        }
    }

    async fn drain(&mut self, round: Option<Round<'s>>) -> Result<(), Status> {
        self.pairs.clear();
        let mut round = round.filter(|_| !self.withdraw_standing());
        loop {
            if let Some(under_way) = round.take() {
                let replies = under_way.await;
                self.settle(replies).await?;
            }
            round = self.next_round();
            if round.is_none() {
                return Ok(());
            }
        }
    }

    fn signalled(&mut self, signals: &Signals) {
        if signals.ready.iter().any(|kv| self.pairs.contains_key(kv)) {
            self.hungry = true;
        }
        for kv in &signals.configs {
            if let Some(pair) = self.pairs.get_mut(kv) {
                pair.changed = true;
            }
        }
    }

    fn receive(&mut self, message: WorkStreamClientMsg) {
        self.last_message = Instant::now();
        match message.body {
            Some(In::Complete(complete)) => self.complete(complete),
            Some(In::Heartbeat(heartbeat)) => self.heartbeat(&heartbeat),
            Some(In::Interest(interest)) => self.interest(&interest),
            Some(In::Subscribe(_)) => {
                self.odd("a second subscribe on one stream is ignored");
            }
            None => self.odd("a message of an unknown kind is ignored"),
        }
    }

    /// What no worker of ours sends. It changes nothing, and a stream full of it must not fill the log.
    fn odd(&mut self, what: &'static str) {
        self.odd = self.odd.saturating_add(1);
        if self.odd <= ODD_LOGGED {
            tracing::warn!(worker = %self.identity, "{what}");
        }
    }

    fn complete(&mut self, complete: crate::generated::StageComplete) {
        let Some(claim) = convert::claim_ref(&complete.lease_token, complete.claim_epoch) else {
            self.odd("a result with a token that is none of ours is ignored");
            return;
        };
        self.waiting_bytes += complete.encoded_len();
        let (stage, mut outcome) = convert::outcome(complete);
        let stage = stage.unwrap_or_else(|| {
            outcome.failure = Some(TaskFailure {
                message: "the worker answered an unknown stage".to_owned(),
                terminal: true,
            });
            Stage::Work
        });
        self.waiting.push(Complete {
            claim,
            stage,
            outcome,
            seed: random() as u64,
        });
    }

    fn interest(&mut self, interest: &Interest) {
        let version = if interest.kind_version == 0 {
            1
        } else {
            interest.kind_version
        };
        let Ok(kv) = KindVersion::parse(&interest.kind, version) else {
            return;
        };
        if let Some(pair) = self.pairs.get_mut(&kv) {
            pair.ready = interest.has_worker;
            // Even a pair less: a claim that stands is made anew.
            self.hungry = true;
            let ready = interest.has_worker;
            self.entry.update(|member| {
                for (its, state) in &mut member.pairs {
                    if *its == kv {
                        *state = ready;
                    }
                }
            });
        }
    }

    fn heartbeat(&mut self, heartbeat: &WorkHeartbeat) {
        let pairs = heartbeat.lease_token.iter().zip(&heartbeat.claim_epoch);
        let named: Vec<_> = pairs
            .filter_map(|(token, epoch)| convert::claim_ref(token, *epoch))
            .collect();
        self.name(named);
    }

    /// The worker says which tasks it has: their leases are renewed, and each occupies a slot as long as it is named.
    fn name(&mut self, mut named: Vec<ClaimRef>) {
        named.truncate(MAX_NAMED);
        self.shared.leases.name(&named, Instant::now());
        let tokens: HashSet<_> = named.iter().map(|claim| claim.token).collect();
        self.held.retain(|token, held| {
            tokens.contains(token)
                || (held.task.is_some() && self.shared.leases.is_live(&held.claim))
        });
        for claim in &named {
            self.held.entry(claim.token).or_insert(Held {
                claim: *claim,
                task: None,
            });
        }
        self.named = named;
        // A claim that stands needs no other, and keeps its place among those of other workers.
        self.hungry |= self.withdraw.is_none() || !self.held.is_empty();
        let (inflight, now_ms) = (self.inflight(), self.shared.store.now_ms());
        self.entry.update(|member| {
            member.inflight = inflight;
            member.heartbeat_ms = now_ms;
        });
    }

    /// Bytes of an unfinished message are arriving: what was last named stays named.
    fn name_while_receiving(&mut self) {
        let arrived = self.activity.last();
        let now = Instant::now();
        if arrived > self.last_message
            && now.duration_since(self.last_message) < MAX_UNFINISHED
            && now.saturating_duration_since(arrived) < self.shared.options.lease
        {
            let held: Vec<_> = self.held.values().map(|held| held.claim).collect();
            self.shared.leases.name(&held, arrived);
        }
    }

    fn inflight(&self) -> u32 {
        u32::try_from(self.held.len()).unwrap_or(u32::MAX)
    }

    /// The results that wait, and one claim for the slots that are free (those the results free included).
    fn next_round(&mut self) -> Option<Round<'s>> {
        let results: Vec<_> = self.waiting.drain(..).collect();
        self.waiting_bytes = 0;
        for result in &results {
            self.held.remove(&result.claim.token);
        }
        let free = self.credit.saturating_sub(self.inflight());
        let claim = (free > 0 && (self.hungry || !results.is_empty()))
            .then(|| self.claim(free))
            .flatten();
        if results.is_empty() && claim.is_none() {
            return None;
        }
        self.under_way = results.iter().map(|result| result.claim).collect();
        let mut commands: Vec<_> = results.into_iter().map(Command::Complete).collect();
        self.asked = claim.as_ref().map_or(0, |claim| claim.limit);
        if let Some(claim) = claim {
            self.hungry = false;
            commands.push(Command::Claim(claim));
        }
        let store = &self.shared.store;
        Some(Box::pin(async move { store.transact(commands).await }))
    }

    /// Leaves a claim with the store, of a worker that has nothing at all: what it holds would say which tasks suit it.
    fn stand(&mut self) -> Option<Round<'s>> {
        if self.credit == 0 || !self.held.is_empty() || self.has_more_to_do() {
            return None;
        }
        let claim = self.claim(self.credit)?;
        let asked = claim.limit;
        let Standing { answer, withdraw } = self.shared.store.stand(claim)?;
        self.asked = asked;
        self.withdraw = Some(withdraw);
        Some(Box::pin(async move { vec![answer.await] }))
    }

    /// Whether a round is due while a claim stands; or the worker is silent, and may not be there any more.
    fn has_more_to_do(&self) -> bool {
        let is_silent = self.last_message.elapsed() > self.shared.options.lease / 4;
        is_silent
            || self.hungry
            || !self.waiting.is_empty()
            || self.pairs.values().any(|pair| pair.changed)
    }

    /// Takes a standing claim back. `false`: there is none, or its answer comes.
    fn withdraw_standing(&mut self) -> bool {
        self.withdraw.take().is_some_and(|withdraw| withdraw())
    }

    fn claim(&mut self, free: u32) -> Option<ClaimTasks> {
        if self.shared.holding.is_cancelled() {
            return None;
        }
        let pairs: Vec<_> = self
            .order
            .iter()
            .filter(|kv| self.pairs.get(*kv).is_some_and(|pair| pair.ready))
            .cloned()
            .collect();
        if pairs.is_empty() {
            return None;
        }
        // Who went first last time goes last this time.
        self.order.rotate_left(1);
        let mut busy = Vec::new();
        let mut suspects = Vec::new();
        let mut composes = false;
        for sent in self.held.values().filter_map(|held| held.task.as_ref()) {
            if !busy.contains(&sent.kv) {
                busy.push(sent.kv.clone());
            }
            if sent.suspect {
                suspects.push(sent.kv.clone());
            }
            composes |= sent.composes;
        }
        let limit = free.min(MAX_BATCH as u32);
        let mixed = self.order.len() > 1 && self.credit > 1;
        Some(ClaimTasks {
            worker: self.identity.clone(),
            broker: self.shared.options.name.clone(),
            pairs,
            limit,
            // One that composes now has the slot that is kept.
            reserved_for_composers: u32::from(mixed && !composes),
            suspects_on_stream: suspects,
            busy_on_stream: busy,
            seed: (0..limit).map(|_| random()).collect(),
        })
    }

    /// What a round came to: leases end, tasks go out behind their configs.
    async fn settle(&mut self, replies: Vec<Result<Reply, TransactError>>) -> Result<(), Status> {
        self.withdraw = None;
        let under_way = std::mem::take(&mut self.under_way);
        let mut results = under_way.iter();
        // The stream ends after the first failure, and only when every claim of the round is known: `finish` gives them back.
        let mut failed = None;
        let mut uncommitted = None;
        for reply in replies {
            match reply {
                Ok(Reply::Landed(landed)) => {
                    if let Some(claim) = results.next() {
                        self.shared.leases.end(claim);
                        if landed == Landed::Fenced {
                            tracing::debug!(worker = %self.identity, claim.epoch, "a stale result changed nothing");
                        }
                    }
                }
                Ok(Reply::Claimed { tasks }) => {
                    if let Err(status) = self.send(tasks).await {
                        failed.get_or_insert(status);
                    }
                }
                Ok(other) => tracing::error!(?other, "a reply to no command of a session"),
                Err(error) => {
                    failed.get_or_insert_with(|| Status::unavailable(error.to_string()));
                    uncommitted.get_or_insert((error, 0_usize)).1 += 1;
                }
            }
        }
        // Once for all of them: the worker comes back with the same results until they can be written.
        if let Some((error, commands)) = uncommitted {
            tracing::error!(worker = %self.identity, %error, commands, "the answers of a worker could not be committed: ending the stream");
        }
        if let Some(status) = failed {
            return Err(status);
        }
        let inflight = self.inflight();
        self.entry.update(|member| member.inflight = inflight);
        Ok(())
    }
}
