//! Languages that the dialects can run: one entry each.

use super::Refusal;

/// A language, by its names in each dialect.
#[derive(Debug)]
pub(crate) struct Language {
    /// In SandboxFusion's requests.
    pub(crate) sandbox_fusion: &'static str,
    /// In Piston's list of runtimes, with what else it may be called there.
    pub(crate) piston: &'static str,
    pub(crate) aliases: &'static [&'static str],
    /// A program's file, where the client does not name it.
    pub(crate) file: &'static str,
    /// Marks of its fenced blocks in a model's text.
    pub(crate) fences: &'static [&'static str],
}

/// All of them. What runs one is the bundle `snippet`; another language is another bundle.
pub(crate) const LANGUAGES: [Language; 1] = [Language {
    sandbox_fusion: "python",
    piston: "python",
    aliases: &["py", "python3", "py3"],
    file: "main.py",
    fences: &["python", "Python", "py", "Python3", "python3", "PY"],
}];

/// The language of a SandboxFusion request.
pub(crate) fn of_sandbox_fusion(name: &str) -> Result<&'static Language, Refusal> {
    let known = || LANGUAGES.map(|each| each.sandbox_fusion).join(", ");
    let found = LANGUAGES.iter().find(|each| each.sandbox_fusion == name);
    found.ok_or_else(|| {
        Refusal::Invalid(format!("language {name:?} is not supported; this server runs: {}", known()))
    })
}

/// The runtime of a Piston request: by name or alias, and a version that `version` satisfies.
pub(crate) fn of_piston(name: &str, wanted: &str, version: &str) -> Result<&'static Language, Refusal> {
    let named = |each: &&Language| each.piston == name || each.aliases.contains(&name);
    let found = LANGUAGES.iter().find(named).filter(|_| satisfies(version, wanted));
    let known = || LANGUAGES.map(|each| format!("{}-{version}", each.piston)).join(", ");
    // The original's words, and then what there is.
    let unknown = || format!("{name}-{wanted} runtime is unknown; this server has: {}", known());
    found.ok_or_else(|| Refusal::Invalid(unknown()))
}

/// Whether a version is one that was asked for: `*`, `3`, `3.x`, `3.11`, `3.11.2`.
fn satisfies(version: &str, wanted: &str) -> bool {
    let wanted = wanted.trim();
    let parts: Vec<&str> = version.split('.').collect();
    let any = |part: &str| matches!(part, "*" | "x" | "X");
    let asked: Vec<&str> = wanted.split('.').take_while(|part| !any(part)).collect();
    let known = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let all_after_are_any = wanted.split('.').skip(asked.len()).all(any);
    !wanted.is_empty() && all_after_are_any && asked.iter().all(known) && parts.starts_with(&asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_met_by_their_parts() {
        for yes in ["*", "3", "3.x", "3.*", "3.11", "3.11.x", "3.11.2", "x"] {
            assert!(satisfies("3.11.2", yes), "{yes}");
        }
        for no in ["", "2", "3.1", "3.12", "3.11.20", "3.11.2.1", "3.x.2", "^3", "3..", "latest"] {
            assert!(!satisfies("3.11.2", no), "{no}");
        }
    }

    #[test]
    fn what_there_is_not_is_refused_with_what_there_is() {
        let Err(Refusal::Invalid(text)) = of_sandbox_fusion("cpp") else { panic!("cpp") };
        assert_eq!(text, "language \"cpp\" is not supported; this server runs: python");
        let Err(Refusal::Invalid(text)) = of_piston("cms_ioi", "*", "3.11.2") else { panic!("cms_ioi") };
        assert_eq!(text, "cms_ioi-* runtime is unknown; this server has: python-3.11.2");
        assert_eq!(of_piston("python3", "*", "3.11.2").unwrap().piston, "python");
    }
}
