//! Stand-ins for programs: scripts that say or do something first and are the real one otherwise.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// Where the real Terraform is.
pub(crate) fn real_terraform() -> String {
    let found = Command::new("sh")
        .args(["-c", "command -v terraform"])
        .output()
        .unwrap();
    String::from_utf8(found.stdout).unwrap().trim().to_owned()
}

/// Writes a script that can be run.
pub(crate) fn script(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
