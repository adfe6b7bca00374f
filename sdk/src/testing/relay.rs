//! A wire on loopback that can be cut: what stands between a worker and a broker when the network fails.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

#[derive(Default)]
struct State {
    sockets: Vec<std::net::TcpStream>,
    is_down: bool,
    connections: u64,
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
        let target = target.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut pipes = JoinSet::new();
            loop {
                let Ok((near, _)) = listener.accept().await else {
                    return;
                };
                let is_down = lock(&shared).is_down;
                if is_down {
                    drop(near);
                    continue;
                }
                let Ok(far) = TcpStream::connect(&target).await else {
                    continue;
                };
                if let Ok((near, far)) = register(&shared, near, far) {
                    pipes.spawn(pipe(near, far));
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

async fn pipe(mut near: TcpStream, mut far: TcpStream) {
    // The end of a connection is no failure of the relay.
    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
}
