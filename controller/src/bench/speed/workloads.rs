//! The two programs that every way runs. They are harmless, which is why some ways may run them without a sandbox.

use serde::Serialize;
use serde_json::{Value, json};

/// A program, what it prints, and what /verify asks of it.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    /// For the title of its table.
    #[serde(skip)]
    pub(super) title: &'static str,
    pub(super) code: &'static str,
    pub(super) prints: &'static str,
    /// What an interpreter may lack.
    #[serde(skip)]
    pub(super) needs: Option<&'static str>,
}

const TESTS: [&str; 3] =
    ["assert add(1, 2) == 3", "assert add(-1, 1) == 0", "assert add(10**9, 1) == 1000000001"];

pub(super) const WORKLOADS: [Workload; 2] = [
    Workload {
        name: "trivial",
        title: "a function and one `print`",
        code: "def add(a, b):\n    return a + b\n\n\nprint(add(20, 22))\n",
        prints: "42\n",
        needs: None,
    },
    Workload {
        name: "imports",
        title: "the same after `import json, re, math, collections, itertools, heapq, numpy`",
        code: "import json, re, math, collections, itertools, heapq, numpy\n\n\n\
            def add(a, b):\n    return a + b\n\n\nprint(add(20, 22))\n",
        prints: "42\n",
        needs: Some("numpy"),
    },
];

impl Workload {
    /// The body of its `POST /verify`.
    pub(super) fn request(&self) -> Value {
        json!({ "code": self.code, "tests": TESTS })
    }

    /// Its file's name.
    pub(super) fn file(&self) -> String {
        format!("{}.py", self.name)
    }
}
