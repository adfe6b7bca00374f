//! The wire by hand: frames, messages, and ways to get them wrong. No library would send most of it.

use fastrand::Rng;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// One frame of HTTP/2.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame is small");
    let mut out = length.to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// What a client says first.
pub(crate) fn greeting() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

/// The head of a call, uncompressed.
pub(crate) fn call(stream: u32, method: &str) -> Vec<u8> {
    let text = |out: &mut Vec<u8>, text: &str| {
        out.push(u8::try_from(text.len()).expect("short"));
        out.extend(text.as_bytes());
    };
    // `:method: POST` and `:scheme: http` of the static table.
    let mut block = vec![0x83, 0x86];
    for (name, value) in [
        (0x44, format!("/converge.worker.v1.WorkerService/{method}")),
        (0x41, "hostile".to_owned()),
        (0x5f, "application/grpc".to_owned()),
    ] {
        block.push(name);
        text(&mut block, &value);
    }
    block.push(0x40);
    text(&mut block, "te");
    text(&mut block, "trailers");
    frame(HEADERS, END_HEADERS, stream, &block)
}

/// A message of gRPC in frames of data.
pub(crate) fn data(stream: u32, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a message is small");
    prefixed(stream, 0, length, message)
}

/// The same, with whatever it says of itself.
pub(crate) fn prefixed(stream: u32, compressed: u8, length: u32, bytes: &[u8]) -> Vec<u8> {
    let mut body = vec![compressed];
    body.extend(length.to_be_bytes());
    body.extend(bytes);
    body.chunks(16_384)
        .flat_map(|chunk| frame(DATA, 0, stream, chunk))
        .collect()
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or(0));
}

/// A field of protobuf that is a number.
pub(crate) fn int(field: u64, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint(&mut out, field << 3);
    varint(&mut out, value);
    out
}

/// A field that is a text, bytes or a message.
pub(crate) fn bytes(field: u64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint(&mut out, field << 3 | 2);
    varint(&mut out, value.len() as u64);
    out.extend(value);
    out
}

/// The fields of a message: number, and what it holds (a number as its bytes, big end first).
pub(crate) fn fields(mut message: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn read(from: &mut &[u8]) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (first, rest) = from.split_first()?;
            *from = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
    let mut found = Vec::new();
    while let Some(tag) = read(&mut message) {
        let value = match tag & 7 {
            0 => read(&mut message).map(|value| value.to_be_bytes().to_vec()),
            2 => read(&mut message).and_then(|length| {
                let length = usize::try_from(length).ok()?;
                let (value, rest) = message.split_at_checked(length)?;
                message = rest;
                Some(value.to_vec())
            }),
            _ => None,
        };
        let Some(value) = value else { break };
        found.push((tag >> 3, value));
    }
    found
}

/// Bytes, as many as come.
pub(crate) fn noise(rng: &mut Rng, at_most: usize) -> Vec<u8> {
    let length = rng.usize(0..=at_most);
    std::iter::repeat_with(|| rng.u8(..)).take(length).collect()
}

/// A text, a number, a document: what may stand in a field, or may not.
fn content(rng: &mut Rng) -> Vec<u8> {
    let deep = "[".repeat(300);
    let texts: &[&[u8]] = &[
        b"",
        b"demo",
        b"app",
        b"work",
        b"{}",
        b"null",
        b"{\"a\":1,\"a\":2}",
        b"{\"n\":1e999999999999}",
        b"\xff\xfe\x00",
        b"a/b\x00c",
        b"../../etc",
        b"True",
        b"Ready",
        b"converge.sh/provider-config",
        b"/a/-/0",
        deep.as_bytes(),
    ];
    match rng.u8(0..4) {
        0 => noise(rng, 40),
        1 => vec![b'x'; rng.usize(0..5_000)],
        _ => texts[rng.usize(0..texts.len())].to_vec(),
    }
}

fn number(rng: &mut Rng) -> u64 {
    match rng.u8(0..4) {
        0 => rng.u64(..),
        1 => u64::MAX,
        _ => rng.u64(0..8),
    }
}

/// A message of some fields, some of them messages again.
fn any(rng: &mut Rng, depth: u8) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..rng.u8(0..6) {
        let field = rng.u64(1..12);
        out.extend(match rng.u8(0..4) {
            0 => int(field, number(rng)),
            1 if depth > 0 => bytes(field, &any(rng, depth - 1)),
            _ => bytes(field, &content(rng)),
        });
    }
    out
}

/// What a worker subscribes with.
pub(crate) fn subscribe(kinds: &[&str], credit: u64) -> Vec<u8> {
    let mut body: Vec<u8> = kinds
        .iter()
        .flat_map(|kind| bytes(1, kind.as_bytes()))
        .collect();
    body.extend(int(2, credit));
    bytes(1, &body)
}

/// The same as [`content`], where only text can be read.
fn text(rng: &mut Rng) -> Vec<u8> {
    String::from_utf8_lossy(&content(rng))
        .into_owned()
        .into_bytes()
}

/// A result for a claim that can be read, of any content.
pub(crate) fn complete(rng: &mut Rng, token: &[u8], epoch: u64) -> Vec<u8> {
    let mut body = int(2, rng.u64(1..3));
    for _ in 0..rng.u8(0..5) {
        body.extend(match rng.u8(0..7) {
            0 => bytes(3, &content(rng)),
            1 => {
                let condition: Vec<_> = (1..5).map(|field| bytes(field, &text(rng))).collect();
                bytes(4, &condition.concat())
            }
            2 => bytes(5, &composition(rng)),
            3 => bytes(7, &text(rng)),
            4 => int(9, 1),
            5 => int(2, number(rng)),
            _ => [bytes(6, &content(rng)), int(8, number(rng)), int(99, 1)].concat(),
        });
    }
    body.extend(bytes(1, token));
    body.extend(int(10, epoch));
    bytes(2, &body)
}

fn composition(rng: &mut Rng) -> Vec<u8> {
    let name = |rng: &mut Rng| match rng.u8(0..4) {
        0 => text(rng),
        n => format!("c{n}").into_bytes(),
    };
    let reference = |rng: &mut Rng| [bytes(1, b"demo"), bytes(2, &name(rng))].concat();
    let mut out = Vec::new();
    for _ in 0..rng.u8(0..8) {
        out.extend(match rng.u8(0..3) {
            0 => {
                let label = [bytes(1, &text(rng)), bytes(2, &text(rng))].concat();
                let mut child = [bytes(1, b"demo"), bytes(2, &name(rng))].concat();
                if rng.bool() {
                    child.extend(bytes(3, &content(rng)));
                    child.extend(bytes(4, &label));
                    child.extend(int(5, number(rng)));
                }
                bytes(1, &child)
            }
            1 => {
                let flow = [bytes(1, &text(rng)), bytes(2, &text(rng))].concat();
                let edge = [
                    bytes(1, &reference(rng)),
                    bytes(2, &reference(rng)),
                    bytes(3, &flow),
                ];
                bytes(2, &edge.concat())
            }
            _ => {
                let config = [
                    bytes(1, &text(rng)),
                    bytes(2, b"demo"),
                    int(3, number(rng)),
                    bytes(4, &content(rng)),
                    int(5, number(rng)),
                ];
                bytes(3, &config.concat())
            }
        });
    }
    out
}

/// A message of a client: one of those there are, or of none.
pub(crate) fn message(rng: &mut Rng) -> Vec<u8> {
    match rng.u8(0..6) {
        0 => subscribe(&["demo", "app", "?"], number(rng)),
        1 => {
            let (token, epoch) = (content(rng), number(rng));
            complete(rng, &token, epoch)
        }
        2 => {
            let body = [
                bytes(1, &content(rng)),
                int(2, number(rng)),
                int(3, number(rng)),
                int(4, number(rng)),
            ];
            bytes(3, &body.concat())
        }
        3 => {
            let mut beat = Vec::new();
            for _ in 0..rng.u8(0..20) {
                beat.extend(bytes(1, &content(rng)));
                beat.extend(int(2, number(rng)));
            }
            bytes(4, &beat)
        }
        _ => any(rng, 4),
    }
}

/// Gets a message wrong.
pub(crate) fn spoil(rng: &mut Rng, message: &mut Vec<u8>) {
    for _ in 0..rng.u8(0..4) {
        let length = message.len();
        if length == 0 {
            return;
        }
        let at = rng.usize(0..length);
        match rng.u8(0..4) {
            0 => message[at] ^= 1 << rng.u8(0..8),
            1 => message.truncate(at),
            2 => {
                let more = noise(rng, 8);
                message.splice(at..at, more);
            }
            _ => {
                let again = message[at..].to_vec();
                message.extend(again);
            }
        }
    }
}
