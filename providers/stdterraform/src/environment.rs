//! What the programs of a run see of the worker's environment.
//!
//! Owns the fixed list and which of its values are secret. Must hold: a variable that changes what Terraform does to a state (`TF_CLI_ARGS*`,
//! `TF_VAR_*`, `TF_WORKSPACE`, `TF_DATA_DIR`) never passes, asked for or not, nor do the worker's own `TLS_*`. Not here: what a run adds.

use std::collections::BTreeMap;

use crate::redact::Secrets;

/// Passed by name.
const PASSED: [&str; 22] = [
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "LC_ALL",
    "TZ",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "GIT_SSL_CAPATH",
    "USER",
];
/// Passed by how they begin.
const PASSED_PREFIXES: [&str; 5] = ["AWS_", "ARM_", "AZURE_", "GOOGLE_", "CLOUDSDK_"];
/// Never passed.
const NEVER: [&str; 2] = ["TF_WORKSPACE", "TF_DATA_DIR"];
/// Never passed by how they begin.
const NEVER_PREFIXES: [&str; 3] = ["TF_CLI_ARGS", "TF_VAR_", "TLS_"];
/// A name with one of these holds a secret.
const SECRET_WORDS: [&str; 12] = [
    "SECRET",
    "TOKEN",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "ACCESS_KEY",
    "API_KEY",
    "PRIVATE",
    "CONNECTION_STRING",
    "STORAGE_KEY",
    "SAS",
];

/// An environment: names and values, as text.
pub(crate) type Env = BTreeMap<String, String>;

fn is_never(name: &str) -> bool {
    NEVER.contains(&name) || NEVER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Checks one entry of `inherit_env`: a name, in which `*` stands for anything.
///
/// # Errors
/// Why it can never be passed.
pub(crate) fn check_extra(name: &str) -> Result<(), String> {
    let shown: String = name.chars().take(64).collect();
    if name.is_empty()
        || !name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '*')
    {
        return Err(format!(
            "{shown:?} is no name of a variable (letters, digits, _ and * for anything)"
        ));
    }
    if is_never(name) {
        return Err(format!(
            "{shown:?} is never passed: it would change what a run does behind its spec"
        ));
    }
    Ok(())
}

/// The part of `worker` that passes, with what the config asks for besides.
pub(crate) fn pass(worker: &Env, extra: &[String]) -> Env {
    let passes = |name: &str| {
        PASSED.contains(&name)
            || PASSED_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix))
            || extra.iter().any(|pattern| glob(pattern, name))
    };
    worker
        .iter()
        .filter(|(name, value)| passes(name) && !is_never(name) && !value.contains('\0'))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// The secrets among `env`: by name, and the logins of URLs whatever the name.
pub(crate) fn secrets(env: &Env) -> Secrets {
    let mut secrets = Secrets::default();
    for (name, value) in env {
        let upper = name.to_ascii_uppercase();
        let is_path = upper.ends_with("_FILE")
            || upper.ends_with("_PATH")
            || upper.ends_with("_URI")
            || upper.ends_with("_URL");
        let names_secret = SECRET_WORDS.iter().any(|word| upper.contains(word));
        // GOOGLE_CREDENTIALS is a key or the path of one.
        if names_secret && !is_path && !std::path::Path::new(value).is_absolute() {
            secrets.add(value);
            for part in value.split(';') {
                if let Some((key, part)) = part.split_once('=')
                    && (key.ends_with("Key") || key.ends_with("Signature"))
                {
                    secrets.add(part);
                }
            }
            if let Ok(json @ serde_json::Value::Object(_)) = serde_json::from_str(value) {
                for (key, member) in json.as_object().into_iter().flatten() {
                    if key.contains("key") || key.contains("secret") || key.contains("token") {
                        secrets.add_json(member);
                    }
                }
            }
        }
        if let Some(password) = password_of(value) {
            secrets.add(&password);
        }
    }
    secrets
}

/// The password of a URL, decoded.
pub(crate) fn password_of(value: &str) -> Option<String> {
    let url = url::Url::parse(value).ok()?;
    let password = url.password()?;
    Some(
        percent_encoding::percent_decode_str(password)
            .decode_utf8_lossy()
            .into_owned(),
    )
}

/// Whether `name` fits `pattern`, in which `*` stands for anything.
fn glob(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(first) = parts.next() else {
        return false;
    };
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<_> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Env {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn only_the_list_and_what_is_asked_for_passes() {
        let worker = env(&[
            ("PATH", "/bin"),
            ("AWS_REGION", "r"),
            ("SECRET_DB_URL", "x"),
            ("TF_VAR_a", "1"),
            ("TF_CLI_ARGS_apply", "-destroy"),
            ("TF_WORKSPACE", "foo"),
            ("TF_DATA_DIR", "/x"),
            ("TF_LOG", "trace"),
            ("TLS_KEY_FILE", "k"),
            ("MY_A", "1"),
            ("MY_B", "2"),
            ("OTHER", "3"),
        ]);
        let names = |extra: &[&str]| {
            let extra: Vec<_> = extra.iter().map(|name| (*name).to_owned()).collect();
            pass(&worker, &extra).into_keys().collect::<Vec<_>>()
        };
        assert_eq!(names(&[]), ["AWS_REGION", "PATH"]);
        assert_eq!(
            names(&["MY_*", "OTHER"]),
            ["AWS_REGION", "MY_A", "MY_B", "OTHER", "PATH"]
        );
        assert_eq!(
            names(&["*"]),
            [
                "AWS_REGION",
                "MY_A",
                "MY_B",
                "OTHER",
                "PATH",
                "SECRET_DB_URL",
                "TF_LOG"
            ]
        );
    }

    #[test]
    fn what_is_never_passed_cannot_be_asked_for() {
        for name in [
            "TF_VAR_x",
            "TF_CLI_ARGS",
            "TF_CLI_ARGS_plan",
            "TF_WORKSPACE",
            "TF_DATA_DIR",
            "TLS_KEY_FILE",
            "A=B",
            "",
            "A B",
        ] {
            assert!(check_extra(name).is_err(), "{name}");
        }
        for name in ["TF_CLI_CONFIG_FILE", "MY_*", "VAULT_ADDR"] {
            assert!(check_extra(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn globs_match_as_expected() {
        for (pattern, name, fits) in [
            ("A", "A", true),
            ("A", "AB", false),
            ("A*", "AB", true),
            ("*B", "AB", true),
            ("A*C", "ABC", true),
            ("A*C", "AB", false),
            ("A*A", "A", false),
            ("*", "", true),
            ("*B*", "ABC", true),
            ("A**C", "AC", true),
        ] {
            assert_eq!(glob(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn secrets_are_told_by_name_and_by_login() {
        let redactor = secrets(&env(&[
            ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI"),
            (
                "AZURE_STORAGE_CONNECTION_STRING",
                "AccountName=acct;AccountKey=c2VjcmV0a2V5;EndpointSuffix=x",
            ),
            (
                "GOOGLE_CREDENTIALS",
                r#"{"type":"service_account","private_key":"-----BEGIN-----\nabcdefgh\n"}"#,
            ),
            ("HTTPS_PROXY", "http://me:pr%40xypass@proxy:3128"),
            ("AWS_REGION", "eu-west-1"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token"),
            ("ARM_CLIENT_SECRET", "arm-secret"),
        ]))
        .redactor();
        let text = "wJalrXUtnFEMI c2VjcmV0a2V5 abcdefgh pr@xypass pr%40xypass arm-secret";
        let shown = redactor.redact(text).into_owned();
        for part in text.split(' ') {
            assert!(!shown.contains(part), "{part} in {shown}");
        }
        assert_eq!(
            redactor.redact("eu-west-1 /var/run/token acct"),
            "eu-west-1 /var/run/token acct"
        );
    }
}
