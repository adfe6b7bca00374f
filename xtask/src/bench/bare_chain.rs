//! The least that "apply to Ready" asks of a machine: two commits on the disk and the ways between the threads that must see them.
//!
//! A client speaks to a server, the server hands to a writer, the writer commits and hands to a worker, whose answer comes back to the writer, which commits again.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Context, Result};

const APPLY: u8 = b'a';
const LOOK: u8 = b'l';
const PAGE: usize = 4096;
/// The file is written once and then over and over: a commit allocates nothing.
const PAGES: usize = 1024;

enum Job {
    Apply(SyncSender<()>),
    Done,
    End,
}

/// The client's end. The threads end after it.
pub(crate) struct Chain {
    client: TcpStream,
}

impl Chain {
    pub(crate) fn start(dir: &Path) -> Result<Self> {
        let path = dir.join("bare-chain");
        let log =
            File::create(&path).with_context(|| format!("could not write {}", path.display()))?;
        log.write_all_at(&vec![0; PAGE * PAGES], 0)
            .and_then(|()| log.sync_all())
            .with_context(|| format!("could not write {}", path.display()))?;
        let (client, at_server) = pair()?;
        let (to_worker, at_worker) = pair()?;
        let from_worker = to_worker.try_clone().context("could not share a socket")?;
        let ready = Arc::new(AtomicBool::new(false));
        let (jobs, queue) = sync_channel(1);
        let (for_server, for_writer) = (Arc::clone(&ready), ready);
        let results = jobs.clone();
        std::thread::spawn(move || serve(at_server, &jobs, &for_server));
        std::thread::spawn(move || write(&log, &queue, to_worker, &for_writer));
        std::thread::spawn(move || work(at_worker));
        std::thread::spawn(move || receive(from_worker, &results));
        Ok(Self { client })
    }

    pub(crate) fn apply(&mut self) -> Result<()> {
        self.call(APPLY).map(|_| ())
    }

    pub(crate) fn is_ready(&mut self) -> Result<bool> {
        Ok(self.call(LOOK)? == 1)
    }

    fn call(&mut self, request: u8) -> Result<u8> {
        let mut answer = [0];
        self.client
            .write_all(&[request])
            .and_then(|()| self.client.read_exact(&mut answer))
            .context("the bare chain broke")?;
        Ok(answer[0])
    }
}

/// Two ends of a connection over loopback.
fn pair() -> Result<(TcpStream, TcpStream)> {
    let connected = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let (far, _) = listener.accept()?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        Ok::<_, std::io::Error>((near, far))
    };
    connected().context("could not connect over loopback")
}

fn next(stream: &mut TcpStream) -> Option<u8> {
    let mut byte = [0];
    stream.read_exact(&mut byte).ok().map(|()| byte[0])
}

fn serve(mut client: TcpStream, jobs: &SyncSender<Job>, ready: &AtomicBool) {
    while let Some(request) = next(&mut client) {
        if request == APPLY {
            let (committed, answer) = sync_channel(1);
            if jobs.send(Job::Apply(committed)).is_err() || answer.recv().is_err() {
                return;
            }
        }
        let answer = u8::from(ready.load(Ordering::Acquire));
        if client.write_all(&[answer]).is_err() {
            break;
        }
    }
    let _ = jobs.send(Job::End);
}

fn write(log: &File, queue: &Receiver<Job>, mut worker: TcpStream, ready: &AtomicBool) {
    let page = [1; PAGE];
    for (at, job) in queue.iter().enumerate() {
        let answer = match job {
            Job::Apply(answer) => {
                ready.store(false, Ordering::Release);
                Some(answer)
            }
            Job::Done => None,
            Job::End => break,
        };
        let offset = (at % PAGES * PAGE) as u64;
        let committed = log
            .write_all_at(&page, offset)
            .and_then(|()| log.sync_data());
        if committed.is_err() {
            break;
        }
        let Some(answer) = answer else {
            ready.store(true, Ordering::Release);
            continue;
        };
        let _ = answer.send(());
        if worker.write_all(&[0]).is_err() {
            break;
        }
    }
    let _ = worker.shutdown(Shutdown::Both);
}

fn work(mut tasks: TcpStream) {
    while let Some(task) = next(&mut tasks) {
        if tasks.write_all(&[task]).is_err() {
            return;
        }
    }
}

fn receive(mut results: TcpStream, jobs: &SyncSender<Job>) {
    while next(&mut results).is_some() {
        if jobs.send(Job::Done).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_applied_becomes_ready_after_two_commits_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let mut chain = Chain::start(dir.path()).unwrap();
        for _ in 0..3 {
            chain.apply().unwrap();
            while !chain.is_ready().unwrap() {}
        }
        let log = std::fs::read(dir.path().join("bare-chain")).unwrap();
        assert!(log[..6 * PAGE].iter().all(|byte| *byte == 1));
        assert!(log[6 * PAGE..].iter().all(|byte| *byte == 0));
    }
}
