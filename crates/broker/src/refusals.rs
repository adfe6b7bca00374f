//! What is said of handshakes that failed: one line each, and of a flood only so many.
//!
//! One that failed over a certificate is somebody's mistake and worth a line; a port open to strangers must not fill a disk with them. The
//! rest is what any open port gets to hear.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::Error;

use crate::tls::Peer;

/// So many lines within each window.
const LINES: u32 = 20;
const WINDOW: Duration = Duration::from_secs(60);

/// Those of one listener.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    began: Option<Instant>,
    said: u32,
    unsaid: u64,
}

impl Refusals {
    /// The handshake with this peer failed.
    pub(crate) fn log(&self, peer: &Peer, error: &io::Error) {
        let cause = error.get_ref().and_then(|it| it.downcast_ref::<Error>());
        let is_mistake = matches!(
            cause,
            Some(
                Error::NoCertificatesPresented
                    | Error::InvalidCertificate(_)
                    | Error::AlertReceived(_)
            )
        );
        let place = if is_mistake { self.place() } else { None };
        let Some(place) = place else {
            tracing::debug!(%peer, %error, "no handshake of TLS");
            return;
        };
        if place.unsaid > 0 {
            tracing::info!(
                unsaid = place.unsaid,
                "as many workers more were turned away, or went away"
            );
        }
        match cause {
            Some(Error::NoCertificatesPresented) => {
                tracing::info!(%peer, "a worker without a client certificate was turned away; its TLS_CERT_FILE and TLS_KEY_FILE name one");
            }
            Some(Error::InvalidCertificate(why)) => {
                tracing::info!(%peer, error = %why, "a worker was turned away: its client certificate is not accepted");
            }
            Some(Error::AlertReceived(alert)) => {
                tracing::info!(%peer, ?alert, "a worker went away: it does not accept this broker's certificate");
            }
            _ => {}
        }
        if place.is_last {
            tracing::info!("more of this within a minute is only counted");
        }
    }

    fn place(&self) -> Option<Place> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        window.admit(Instant::now())
    }
}

/// Leave to say one line.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// So many were not said since the last.
    unsaid: u64,
    /// No further one will be said for a while.
    is_last: bool,
}

impl Window {
    fn admit(&mut self, now: Instant) -> Option<Place> {
        let is_over = |began| now.saturating_duration_since(began) >= WINDOW;
        if self.began.is_none_or(is_over) {
            self.began = Some(now);
            self.said = 0;
        }
        if self.said >= LINES {
            self.unsaid += 1;
            return None;
        }
        self.said += 1;
        Some(Place {
            unsaid: std::mem::take(&mut self.unsaid),
            is_last: self.said == LINES,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_flood_so_many_are_named_and_the_rest_is_counted() {
        let mut window = Window::default();
        let began = Instant::now();
        let place = |unsaid, is_last| Some(Place { unsaid, is_last });
        for line in 1..=LINES {
            assert_eq!(window.admit(began), place(0, line == LINES));
        }
        for _ in 0..1_000 {
            assert_eq!(window.admit(began + WINDOW / 2), None);
        }
        assert_eq!(window.admit(began + WINDOW), place(1_000, false));
        assert_eq!(window.admit(began + WINDOW), place(0, false));
    }
}
