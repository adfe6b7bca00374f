//! Values with behaviour of their own: URLs, addresses, networks, quantities.

use std::fmt;

use super::net::{Cidr, Url};
use super::quantity::Quantity;

/// A value that only functions look into.
#[derive(Debug, PartialEq)]
pub(crate) enum Opaque {
    Url(Url),
    Ip(std::net::IpAddr),
    Cidr(Cidr),
    Quantity(Quantity),
}

impl Opaque {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Url(_) => "net.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Quantity(_) => "quantity",
        }
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Quantity(a), Self::Quantity(b)) => {
                a.compare(b) == Some(std::cmp::Ordering::Equal)
            }
            _ => self == other,
        }
    }
}

impl fmt::Display for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => f.write_str(url.text()),
            Self::Ip(ip) => ip.fmt(f),
            Self::Cidr(cidr) => cidr.fmt(f),
            Self::Quantity(quantity) => quantity.fmt(f),
        }
    }
}
