//! URLs, IP addresses and networks, with the names Kubernetes gives these functions.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::super::eval::Budget;
use super::super::fault::Fault;
use super::super::value::{Key, Value};
use super::opaque::Opaque;
use super::{Function, global, list, method, no_overload, string, text};

pub(super) static FUNCTIONS: &[Function] = &[
    global("url", 1, 1, |b, args| {
        parsed(b, "url", args, |text| Url::parse(text).map(Opaque::Url))
    }),
    global("isURL", 1, 1, |b, args| {
        valid(b, "isURL", args, |text| Url::parse(text).is_some())
    }),
    method("getScheme", 0, 0, |b, args| {
        string(b, &url("getScheme", args)?.scheme)
    }),
    method("getHost", 0, 0, |b, args| {
        string(b, &url("getHost", args)?.host)
    }),
    method("getHostname", 0, 0, |b, args| {
        string(b, url("getHostname", args)?.split_host().0)
    }),
    method("getPort", 0, 0, |b, args| {
        string(b, url("getPort", args)?.split_host().1)
    }),
    method("getEscapedPath", 0, 0, |b, args| {
        string(b, &url("getEscapedPath", args)?.path)
    }),
    method("getQuery", 0, 0, get_query),
    global("ip", 1, 1, |b, args| {
        parsed(b, "ip", args, |text| address(text).map(Opaque::Ip))
    }),
    global("isIP", 1, 1, |b, args| {
        valid(b, "isIP", args, |text| address(text).is_some())
    }),
    global("ip.isCanonical", 1, 1, |_, args| {
        let text = text("ip.isCanonical", args, 0)?;
        let ip = address(text).ok_or_else(|| not_a("ip", text))?;
        Ok(Value::Bool(ip.to_string() == text))
    }),
    method("family", 0, 0, |_, args| {
        Ok(Value::Int(if ip("family", args)?.is_ipv4() {
            4
        } else {
            6
        }))
    }),
    method("isUnspecified", 0, 0, |_, args| {
        Ok(Value::Bool(ip("isUnspecified", args)?.is_unspecified()))
    }),
    method("isLoopback", 0, 0, |_, args| {
        Ok(Value::Bool(ip("isLoopback", args)?.is_loopback()))
    }),
    method("isLinkLocalMulticast", 0, 0, |_, args| {
        Ok(Value::Bool(match ip("isLinkLocalMulticast", args)? {
            IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
            IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
        }))
    }),
    method("isLinkLocalUnicast", 0, 0, |_, args| {
        Ok(Value::Bool(link_local(&ip("isLinkLocalUnicast", args)?)))
    }),
    method("isGlobalUnicast", 0, 0, |_, args| {
        let ip = ip("isGlobalUnicast", args)?;
        let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
        let other = ip.is_unspecified()
            || ip.is_loopback()
            || ip.is_multicast()
            || link_local(&ip)
            || broadcast;
        Ok(Value::Bool(!other))
    }),
    global("cidr", 1, 1, |b, args| {
        parsed(b, "cidr", args, |text| Cidr::parse(text).map(Opaque::Cidr))
    }),
    global("isCIDR", 1, 1, |b, args| {
        valid(b, "isCIDR", args, |text| Cidr::parse(text).is_some())
    }),
    method("containsIP", 1, 1, |_, args| {
        let network = cidr("containsIP", args, 0)?;
        let ip = match &args[1] {
            Value::String(text) => address(text).ok_or_else(|| not_a("ip", text))?,
            Value::Opaque(opaque) => match &**opaque {
                Opaque::Ip(ip) => *ip,
                _ => return Err(no_overload("containsIP", args)),
            },
            _ => return Err(no_overload("containsIP", args)),
        };
        Ok(Value::Bool(network.contains(ip)))
    }),
    method("containsCIDR", 1, 1, |_, args| {
        let (outer, inner) = (
            cidr("containsCIDR", args, 0)?,
            cidr("containsCIDR", args, 1)?,
        );
        Ok(Value::Bool(
            inner.bits >= outer.bits && outer.contains(inner.ip),
        ))
    }),
    method("ip", 0, 0, |_, args| {
        Ok(Value::Opaque(Arc::new(Opaque::Ip(cidr("ip", args, 0)?.ip))))
    }),
    method("masked", 0, 0, |_, args| {
        let network = cidr("masked", args, 0)?;
        Ok(Value::Opaque(Arc::new(Opaque::Cidr(Cidr {
            ip: network.base(),
            bits: network.bits,
        }))))
    }),
    method("prefixLength", 0, 0, |_, args| {
        Ok(Value::Int(i64::from(cidr("prefixLength", args, 0)?.bits)))
    }),
];

fn parsed(
    budget: &mut Budget,
    name: &str,
    args: &[Value],
    parse: impl Fn(&str) -> Option<Opaque>,
) -> Result<Value, Fault> {
    if let [Value::Opaque(_)] = args {
        return Ok(args[0].clone());
    }
    let text = text(name, args, 0)?;
    budget.bytes(text.len() as u64)?;
    parse(text)
        .map(|opaque| Value::Opaque(Arc::new(opaque)))
        .ok_or_else(|| not_a(name, text))
}

fn valid(
    budget: &mut Budget,
    name: &str,
    args: &[Value],
    test: impl Fn(&str) -> bool,
) -> Result<Value, Fault> {
    let text = text(name, args, 0)?;
    budget.steps(text.len() as u64 / 8)?;
    Ok(Value::Bool(test(text)))
}

fn not_a(what: &str, text: &str) -> Fault {
    let shown: String = text.chars().take(80).collect();
    let wanted = match what {
        "url" => "an absolute URL",
        "ip" => "an IP address",
        _ => "a network such as 10.0.0.0/16",
    };
    Fault::domain(format!("`{shown}` is not {wanted}"))
}

fn url<'v>(name: &str, args: &'v [Value]) -> Result<&'v Url, Fault> {
    match args {
        [Value::Opaque(opaque), ..] => match &**opaque {
            Opaque::Url(url) => Ok(url),
            _ => Err(no_overload(name, args)),
        },
        _ => Err(no_overload(name, args)),
    }
}

fn ip(name: &str, args: &[Value]) -> Result<IpAddr, Fault> {
    match args {
        [Value::Opaque(opaque), ..] => match &**opaque {
            Opaque::Ip(ip) => Ok(*ip),
            _ => Err(no_overload(name, args)),
        },
        _ => Err(no_overload(name, args)),
    }
}

fn cidr(name: &str, args: &[Value], at: usize) -> Result<Cidr, Fault> {
    match &args[at] {
        Value::Opaque(opaque) => match &**opaque {
            Opaque::Cidr(cidr) => Ok(cidr.clone()),
            _ => Err(no_overload(name, args)),
        },
        Value::String(text) if at > 0 => Cidr::parse(text).ok_or_else(|| not_a("cidr", text)),
        _ => Err(no_overload(name, args)),
    }
}

/// An address; zones and IPv4 written inside IPv6 are refused, as Kubernetes does.
fn address(text: &str) -> Option<IpAddr> {
    let ip: IpAddr = text.parse().ok()?;
    match ip {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => None,
        ip => Some(ip),
    }
}

fn link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
    }
}

/// An address with the length of its network.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cidr {
    ip: IpAddr,
    bits: u8,
}

impl Cidr {
    fn parse(text: &str) -> Option<Self> {
        let (ip, bits) = text.split_once('/')?;
        let ip = address(ip)?;
        let plain = !bits.is_empty() && bits.len() <= 3 && bits.bytes().all(|b| b.is_ascii_digit());
        let bits: u8 = bits
            .parse()
            .ok()
            .filter(|_| plain && (bits.len() == 1 || !bits.starts_with('0')))?;
        (bits <= if ip.is_ipv4() { 32 } else { 128 }).then_some(Self { ip, bits })
    }

    fn base(&self) -> IpAddr {
        mask(self.ip, self.bits)
    }

    fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.ip.is_ipv4() && mask(ip, self.bits) == self.base()
    }
}

fn mask(ip: IpAddr, bits: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => IpAddr::V4(
            (u32::from(ip) & u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)).into(),
        ),
        IpAddr::V6(ip) => IpAddr::V6(
            (u128::from(ip) & u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)).into(),
        ),
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.bits)
    }
}

/// An absolute URL or path, split and otherwise left as it was written.
#[derive(Debug, PartialEq)]
pub(crate) struct Url {
    whole: String,
    scheme: String,
    host: String,
    path: String,
    query: String,
}

impl Url {
    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text.bytes().any(|b| b.is_ascii_control() || b == b' ') {
            return None;
        }
        // A request URI: no fragment.
        let (before, query) = text.split_once('?').unwrap_or((text, ""));
        let mut out = Self {
            whole: text.to_owned(),
            query: query.to_owned(),
            ..Self::empty()
        };
        if let Some(path) = before.strip_prefix('/') {
            escapes_hold(path).then_some(())?;
            out.path = before.to_owned();
            return Some(out);
        }
        let (scheme, rest) = before.split_once(':')?;
        let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.chars().all(letters) {
            return None;
        }
        out.scheme = scheme.to_ascii_lowercase();
        match rest.strip_prefix("//") {
            Some(rest) => {
                let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
                let host = authority
                    .rsplit_once('@')
                    .map_or(authority, |(_, host)| host);
                host_holds(host).then_some(())?;
                out.host = host.to_owned();
                out.path = path.to_owned();
            }
            None if rest.starts_with('/') => out.path = rest.to_owned(),
            // mailto:someone has no path, and is an absolute URI all the same.
            None => {}
        }
        escapes_hold(&out.path).then_some(out)
    }

    fn empty() -> Self {
        Self {
            whole: String::new(),
            scheme: String::new(),
            host: String::new(),
            path: String::new(),
            query: String::new(),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.whole
    }

    /// Host without brackets, and port.
    fn split_host(&self) -> (&str, &str) {
        if let Some(rest) = self.host.strip_prefix('[') {
            let (host, rest) = rest.split_once(']').unwrap_or((rest, ""));
            return (host, rest.strip_prefix(':').unwrap_or(""));
        }
        self.host.rsplit_once(':').unwrap_or((&self.host, ""))
    }
}

fn host_holds(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) if name.parse::<std::net::Ipv6Addr>().is_ok() => ("", port),
            _ => return false,
        },
        None => host.find(':').map_or((host, ""), |at| host.split_at(at)),
    };
    let port = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    port && !name.contains(['[', ']', '<', '>', '"', '\\', '^', '`', '{', '}', '|'])
        && escapes_hold(name)
}

fn escapes_hold(text: &str) -> bool {
    text.split('%')
        .skip(1)
        .all(|after| after.len() >= 2 && after.bytes().take(2).all(|b| b.is_ascii_hexdigit()))
}

fn get_query(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let url = url("getQuery", args)?;
    budget.bytes(url.query.len() as u64 * 4)?;
    let mut all: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
    for pair in url.query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (unescape(name), unescape(value)) else {
            continue;
        };
        all.entry(Key::String(Arc::from(name)))
            .or_default()
            .push(Value::string(value));
    }
    let mut out = BTreeMap::new();
    for (name, values) in all {
        out.insert(name, list(budget, values)?);
    }
    Value::map(out)
}

fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let pair = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(out).ok()
}
