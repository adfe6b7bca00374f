//! Encodings, hashes, JSON, and numbers that look random but follow from a seed.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

use super::super::eval::{Budget, refuse_pending};
use super::super::fault::{Fault, FaultKind};
use super::super::value::Value;
use super::{Function, global, int, no_overload, string, text};
use crate::json;

pub(super) static FUNCTIONS: &[Function] = &[
    global("base64.encode", 1, 1, encode),
    global("base64.decode", 1, 1, decode),
    global("json.marshal", 1, 1, marshal),
    global("json.unmarshal", 1, 1, unmarshal),
    global("hash.sha256", 1, 1, sha256),
    global("hash.fnv64a", 1, 1, fnv64a),
    global("random.seededString", 2, 2, seeded_string),
    global("random.seededInt", 3, 3, seeded_int),
];

fn raw<'v>(name: &str, args: &'v [Value]) -> Result<&'v [u8], Fault> {
    match &args[0] {
        Value::String(text) => Ok(text.as_bytes()),
        Value::Bytes(bytes) => Ok(bytes),
        _ => Err(no_overload(name, args)),
    }
}

fn encode(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let bytes = raw("base64.encode", args)?;
    budget.bytes(bytes.len() as u64 * 4 / 3)?;
    Ok(Value::string(STANDARD.encode(bytes)))
}

fn decode(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let from = text("base64.decode", args, 0)?;
    budget.bytes(from.len() as u64)?;
    let decoded = STANDARD
        .decode(from)
        .or_else(|_| STANDARD_NO_PAD.decode(from))
        .or_else(|_| URL_SAFE_NO_PAD.decode(from));
    match decoded {
        Ok(bytes) => Ok(Value::Bytes(Arc::from(bytes))),
        Err(_) => Err(Fault::domain("the text is not base64")),
    }
}

fn marshal(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    refuse_pending(&args[0])?;
    budget.bytes(args[0].weight())?;
    let mut out = Vec::new();
    json::write(&args[0], &mut out, usize::MAX, &mut |_, pending| {
        Err(super::super::eval::status_read(pending))
    })?;
    string(budget, String::from_utf8_lossy(&out))
}

fn unmarshal(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let from = text("json.unmarshal", args, 0)?;
    // A value takes several times its text: `[0,0,…]` sixteen times.
    budget.bytes(from.len() as u64 * 16)?;
    match json::Doc::parse(from.as_bytes()) {
        Ok(doc) => doc.value(),
        Err(problem) => Err(Fault::domain(format!("the text is not JSON: {problem}"))),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let bytes = raw("hash.sha256", args)?;
    budget.steps(bytes.len() as u64 / 8)?;
    Ok(Value::string(hex(&Sha256::digest(bytes))))
}

fn fnv64a(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let bytes = raw("hash.fnv64a", args)?;
    budget.steps(bytes.len() as u64 / 8)?;
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Ok(Value::string(format!("{hash:016x}")))
}

/// Bytes that follow from a seed: SHA-256 in counter mode.
fn stream(seed: &str) -> impl Iterator<Item = u8> {
    let seed = seed.to_owned();
    (0_u64..).flat_map(move |block| {
        let mut digest = Sha256::new();
        digest.update(seed.as_bytes());
        if block > 0 {
            digest.update(block.to_be_bytes());
        }
        let block: [u8; 32] = digest.finalize().into();
        block
    })
}

fn seeded_string(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let (length, seed) = (
        int("random.seededString", args, 0)?,
        text("random.seededString", args, 1)?,
    );
    let length = usize::try_from(length)
        .ok()
        .filter(|length| (1..=1024).contains(length));
    let length =
        length.ok_or_else(|| Fault::domain("`random.seededString` makes 1 to 1024 characters"))?;
    budget.steps(seed.len() as u64 * (1 + length as u64 / 32))?;
    // 252 is a multiple of 36: dropping the rest keeps all characters equally likely.
    let picks = stream(seed).filter(|byte| *byte < 252).take(length);
    Ok(Value::string(
        picks
            .map(|byte| char::from(ALPHABET[usize::from(byte % 36)]))
            .collect::<String>(),
    ))
}

fn seeded_int(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let name = "random.seededInt";
    let (least, most, seed) = (
        int(name, args, 0)?,
        int(name, args, 1)?,
        text(name, args, 2)?,
    );
    if least >= most {
        return Err(Fault::new(
            FaultKind::Domain,
            "`random.seededInt` needs a least value below its bound",
        ));
    }
    budget.steps(seed.len() as u64)?;
    let mut bytes = stream(seed);
    let drawn = bytes
        .by_ref()
        .take(16)
        .fold(0_u128, |drawn, byte| drawn << 8 | u128::from(byte));
    let span = most.abs_diff(least);
    // 128 drawn bits over at most 64: the bias is below 2^-64. The offset is below the span, so the sum fits.
    let offset = u64::try_from(drawn % u128::from(span)).unwrap_or(0);
    Ok(Value::Int(least.wrapping_add_unsigned(offset)))
}
