//! A wire on loopback that can be cut: what stands between a worker and a broker when the network fails.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

#[derive(Default)]
struct State {
    sockets: Vec<std::net::TcpStream>,
    is_down: bool,
    connections: u64,
    target: String,
    /// Bytes a second that go on to the target.
    rate: Option<u32>,
}

/// Forwards every connection to another address until it is told otherwise. Dropping it cuts everything.
pub struct Relay {
    addr: SocketAddr,
    state: Arc<Mutex<State>>,
    _tasks: JoinSet<()>,
}

impl Relay {
    /// Listens on a free loopback port and forwards to `target`, a broker address or `HOST:PORT`.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn to(target: &str) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State {
            target: host_and_port(target),
            ..State::default()
        }));
        let shared = Arc::clone(&state);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut pipes = JoinSet::new();
            loop {
                let Ok((near, _)) = listener.accept().await else {
                    return;
                };
                let target = {
                    let state = lock(&shared);
                    (!state.is_down).then(|| state.target.clone())
                };
                let Some(target) = target else {
                    continue;
                };
                let Ok(far) = TcpStream::connect(target).await else {
                    continue;
                };
                if let Ok((near, far)) = register(&shared, near, far) {
                    pipes.spawn(pipe(near, far, Arc::clone(&shared)));
                }
            }
        });
        Ok(Self {
            addr,
            state,
            _tasks: tasks,
        })
    }

    /// The address to dial, as a broker address.
    pub fn addr(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// How many connections have been forwarded so far.
    pub fn connections(&self) -> u64 {
        lock(&self.state).connections
    }

    /// Cuts every connection, in both directions, without a word.
    pub fn cut(&self) {
        for socket in lock(&self.state).sockets.drain(..) {
            // It may be closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Cuts every connection and takes no new one until [`up`](Self::up).
    pub fn down(&self) {
        lock(&self.state).is_down = true;
        self.cut();
    }

    /// From now on connections go to another address, where the next process of a broker listens.
    pub fn retarget(&self, target: &str) {
        lock(&self.state).target = host_and_port(target);
        self.cut();
    }

    /// From now on so many bytes a second at most go on to the target; what comes back is as fast as ever.
    pub fn slow(&self, bytes_per_second: u32) {
        lock(&self.state).rate = Some(bytes_per_second);
    }

    /// Takes connections again.
    pub fn up(&self) {
        lock(&self.state).is_down = false;
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.down();
    }
}

fn host_and_port(target: &str) -> String {
    target.trim_start_matches("http://").to_owned()
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn register(
    state: &Mutex<State>,
    near: TcpStream,
    far: TcpStream,
) -> io::Result<(TcpStream, TcpStream)> {
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (near, far) = (near.into_std()?, far.into_std()?);
    let mut state = lock(state);
    state.connections += 1;
    state.sockets.push(near.try_clone()?);
    state.sockets.push(far.try_clone()?);
    Ok((TcpStream::from_std(near)?, TcpStream::from_std(far)?))
}

async fn pipe(near: TcpStream, far: TcpStream, state: Arc<Mutex<State>>) {
    let (mut from_near, mut to_near) = near.into_split();
    let (mut from_far, mut to_far) = far.into_split();
    let back = async {
        let copied = tokio::io::copy(&mut from_far, &mut to_near).await;
        copied.and(to_near.shutdown().await)
    };
    let there = async {
        let mut block = vec![0; 16 << 10];
        loop {
            let length = from_near.read(&mut block).await?;
            if length == 0 {
                return to_far.shutdown().await;
            }
            to_far.write_all(&block[..length]).await?;
            let rate = lock(&state).rate;
            if let Some(rate) = rate {
                let takes = f64::from(u32::try_from(length).unwrap_or(u32::MAX)) / f64::from(rate);
                tokio::time::sleep(Duration::from_secs_f64(takes)).await;
            }
        }
    };
    // The end of a connection is no failure of the relay.
    let _: (io::Result<()>, io::Result<()>) = tokio::join!(back, there);
}
