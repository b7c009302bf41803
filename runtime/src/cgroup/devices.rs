//! Rules for devices on cgroup v2, where they are a program that the kernel asks for each `open` and `mknod`.
//!
//! The rules of `linux.resources.devices` apply in order, so the last that matches decides; the program therefore asks
//! them from the end. The devices that every container has come after all of them.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::path::Path;

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType};

use crate::sys;

const MKNOD: i32 = 1;
const READ: i32 = 2;
const WRITE: i32 = 4;
const ALL: i32 = MKNOD | READ | WRITE;
const BLOCK: i32 = 1;
const CHARACTER: i32 = 2;

/// One rule; an absent part matches everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    allow: bool,
    kind: Option<i32>,
    major: Option<i32>,
    minor: Option<i32>,
    access: i32,
}

impl Rule {
    fn matches_everything(&self) -> bool {
        self.kind.is_none() && self.major.is_none() && self.minor.is_none() && self.access == ALL
    }
}

/// What every container may use: the nodes that it is given by default, terminals, and making nodes, for which it
/// needs a capability as well.
fn usual() -> Vec<Rule> {
    let node =
        |major, minor| Rule { allow: true, kind: Some(CHARACTER), major: Some(major), minor, access: ALL };
    let make = |kind| Rule { allow: true, kind: Some(kind), major: None, minor: None, access: MKNOD };
    vec![
        make(CHARACTER),
        make(BLOCK),
        node(1, Some(3)),
        node(1, Some(5)),
        node(1, Some(7)),
        node(1, Some(8)),
        node(1, Some(9)),
        node(5, Some(0)),
        node(5, Some(2)),
        node(136, None),
    ]
}

fn rule(device: &LinuxDeviceCgroup) -> Result<Rule, String> {
    let kind = match device.typ() {
        None | Some(LinuxDeviceType::A) => None,
        Some(LinuxDeviceType::B) => Some(BLOCK),
        Some(LinuxDeviceType::C | LinuxDeviceType::U) => Some(CHARACTER),
        Some(LinuxDeviceType::P) => return Err("a pipe is no device".into()),
    };
    let number = |number: Option<i64>| {
        number.filter(|number| *number >= 0).map(i32::try_from).transpose().map_err(|error| error.to_string())
    };
    let mut access = 0;
    for letter in device.access().as_deref().filter(|access| !access.is_empty()).unwrap_or("rwm").chars() {
        access |= match letter {
            'r' => READ,
            'w' => WRITE,
            'm' => MKNOD,
            other => return Err(format!("access {other:?}: only r, w and m")),
        };
    }
    Ok(Rule {
        allow: device.allow(),
        kind,
        major: number(device.major())?,
        minor: number(device.minor())?,
        access,
    })
}

/// One instruction: operation, registers, jump, operand.
fn instruction(operation: u8, target: u8, source: u8, jump: i16, operand: i32) -> u64 {
    let mut bytes = [0u8; 8];
    bytes[0] = operation;
    bytes[1] = target | source << 4;
    bytes[2..4].copy_from_slice(&jump.to_ne_bytes());
    bytes[4..8].copy_from_slice(&operand.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

/// Registers of the program: the question is taken apart into these.
const RESULT: u8 = 0;
const SCRATCH: u8 = 1;
const KIND: u8 = 2;
const ACCESS: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

const LOAD_WORD: u8 = 0x61;
const MOVE: u8 = 0xb7;
const MOVE_REGISTER: u8 = 0xbf;
const AND_32: u8 = 0x54;
const SHIFT_RIGHT: u8 = 0x77;
const JUMP_UNLESS_EQUAL: u8 = 0x55;
const JUMP_IF_EQUAL: u8 = 0x15;
const EXIT: u8 = 0x95;

/// The program for rules in the order in which they apply.
fn program(rules: &[Rule]) -> Vec<u64> {
    let mut code = vec![
        instruction(LOAD_WORD, KIND, 1, 0, 0),
        instruction(MOVE_REGISTER, ACCESS, KIND, 0, 0),
        instruction(AND_32, KIND, 0, 0, 0xffff),
        instruction(SHIFT_RIGHT, ACCESS, 0, 0, 16),
        instruction(LOAD_WORD, MAJOR, 1, 4, 0),
        instruction(LOAD_WORD, MINOR, 1, 8, 0),
    ];
    for rule in rules.iter().rev() {
        code.extend(block(rule));
        if rule.matches_everything() {
            // The kernel refuses programs with parts that are never reached.
            return code;
        }
    }
    code.extend(answer(true));
    code
}

fn answer(allow: bool) -> [u64; 2] {
    [instruction(MOVE, RESULT, 0, 0, i32::from(allow)), instruction(EXIT, 0, 0, 0, 0)]
}

/// What has to hold for a rule to match; otherwise the jump is taken.
struct Condition {
    prepare: Vec<u64>,
    jump: u8,
    register: u8,
    operand: i32,
}

impl Condition {
    fn equal(register: u8, operand: i32) -> Self {
        Self { prepare: Vec::new(), jump: JUMP_UNLESS_EQUAL, register, operand }
    }
}

/// The question of one rule: goes on to the next where it does not match.
fn block(rule: &Rule) -> Vec<u64> {
    let mut conditions = Vec::new();
    conditions.extend(rule.kind.map(|kind| Condition::equal(KIND, kind)));
    if rule.access != ALL {
        // Allowed is what is asked for in whole, denied what is asked for in part.
        let (mask, jump) =
            if rule.allow { (ALL & !rule.access, JUMP_UNLESS_EQUAL) } else { (rule.access, JUMP_IF_EQUAL) };
        let prepare =
            vec![instruction(MOVE_REGISTER, SCRATCH, ACCESS, 0, 0), instruction(AND_32, SCRATCH, 0, 0, mask)];
        conditions.push(Condition { prepare, jump, register: SCRATCH, operand: 0 });
    }
    conditions.extend(rule.major.map(|major| Condition::equal(MAJOR, major)));
    conditions.extend(rule.minor.map(|minor| Condition::equal(MINOR, minor)));
    let answer = answer(rule.allow);
    let total = conditions.iter().map(|each| each.prepare.len() + 1).sum::<usize>() + answer.len();
    let mut code = Vec::with_capacity(total);
    for Condition { prepare, jump, register, operand } in conditions {
        code.extend(prepare);
        // Over the rest of this block.
        let rest = i16::try_from(total - code.len() - 1).unwrap_or(i16::MAX);
        code.push(instruction(jump, register, 0, rest, operand));
    }
    code.extend(answer);
    code
}

/// Puts the rules in force for a cgroup and everything below it.
pub(crate) fn enforce(directory: &Path, devices: &[LinuxDeviceCgroup]) -> Result<(), String> {
    let mut rules = devices.iter().map(rule).collect::<Result<Vec<_>, _>>()?;
    rules.extend(usual());
    let cgroup = File::open(directory).map_err(|error| error.to_string())?;
    sys::attach_device_program(&program(&rules), cgroup.as_fd()).map_err(|error| format!("bpf: {error}"))
}

/// The same on v1, where rules are lines, of which a new one takes effect at once. A new cgroup has its parent's.
pub(crate) fn enforce_v1(directory: &Path, devices: &[LinuxDeviceCgroup]) -> Result<(), String> {
    if devices.is_empty() {
        return Ok(());
    }
    let rules = devices.iter().map(rule).collect::<Result<Vec<_>, _>>()?;
    let open = |name: &str| {
        let path = directory.join(name);
        File::options().write(true).open(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let (mut allow, mut deny) = (open("devices.allow")?, open("devices.deny")?);
    for rule in rules.iter().chain(&usual()) {
        let file = if rule.allow { &mut allow } else { &mut deny };
        // In one call: the kernel takes each for a whole line.
        let line = line(rule);
        let written = file.write(line.as_bytes()).map_err(|error| format!("devices {line:?}: {error}"))?;
        if written != line.len() {
            return Err(format!("devices {line:?}: written in part"));
        }
    }
    Ok(())
}

fn line(rule: &Rule) -> String {
    if rule.matches_everything() {
        return "a".into();
    }
    let kind = match rule.kind {
        Some(BLOCK) => "b",
        Some(_) => "c",
        None => "a",
    };
    let number = |number: Option<i32>| number.map_or_else(|| "*".into(), |number| number.to_string());
    let access: String = [(READ, 'r'), (WRITE, 'w'), (MKNOD, 'm')]
        .into_iter()
        .filter(|(bit, _)| rule.access & bit != 0)
        .map(|(_, letter)| letter)
        .collect();
    format!("{kind} {}:{} {access}", number(rule.major), number(rule.minor))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rules(list: Value) -> Vec<Rule> {
        let devices: Vec<LinuxDeviceCgroup> = serde_json::from_value(list).unwrap();
        devices.iter().map(|device| rule(device).unwrap()).collect()
    }

    /// Runs a program as the kernel does.
    fn ask(code: &[u64], kind: i32, access: i32, major: i32, minor: i32) -> bool {
        let memory = [access << 16 | kind, major, minor];
        let mut registers = [0i64; 6];
        let mut at = 0;
        loop {
            let bytes = code[at].to_ne_bytes();
            let (operation, target, source) =
                (bytes[0], usize::from(bytes[1] & 15), usize::from(bytes[1] >> 4));
            let jump = i16::from_ne_bytes([bytes[2], bytes[3]]);
            let operand = i64::from(i32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]));
            let mut taken = false;
            match operation {
                LOAD_WORD => registers[target] = i64::from(memory[usize::try_from(jump).unwrap() / 4]),
                MOVE => registers[target] = operand,
                MOVE_REGISTER => registers[target] = registers[source],
                AND_32 => registers[target] &= operand,
                SHIFT_RIGHT => registers[target] >>= operand,
                JUMP_UNLESS_EQUAL => taken = registers[target] != operand,
                JUMP_IF_EQUAL => taken = registers[target] == operand,
                EXIT => return registers[0] == 1,
                other => panic!("operation {other:#x}"),
            }
            at += 1 + if taken { usize::try_from(jump).unwrap() } else { 0 };
        }
    }

    #[test]
    fn the_last_rule_that_matches_decides() {
        let code = program(&rules(json!([
            {"allow": false, "access": "rwm"},
            {"allow": true, "type": "c", "major": 10, "minor": 229, "access": "rw"},
            {"allow": true, "type": "b", "major": 8, "access": "r"},
            {"allow": false, "type": "b", "major": 8, "minor": 1, "access": "r"}
        ])));
        assert!(ask(&code, CHARACTER, READ | WRITE, 10, 229));
        assert!(ask(&code, CHARACTER, READ, 10, 229));
        assert!(!ask(&code, CHARACTER, READ | MKNOD, 10, 229), "only in whole");
        assert!(!ask(&code, BLOCK, READ, 10, 229));
        assert!(!ask(&code, CHARACTER, READ, 10, 230));
        assert!(ask(&code, BLOCK, READ, 8, 7));
        assert!(!ask(&code, BLOCK, READ, 8, 1), "the exception stands behind");
        assert!(!ask(&code, BLOCK, WRITE, 8, 7));
    }

    #[test]
    fn without_a_rule_that_matches_the_kernels_own_answer_stays() {
        assert!(ask(&program(&[]), CHARACTER, ALL, 240, 1));
    }

    #[test]
    fn usual_devices_survive_a_rule_that_denies_everything() {
        let mut list = rules(json!([{"allow": false}]));
        list.extend(usual());
        let code = program(&list);
        assert!(ask(&code, CHARACTER, READ | WRITE, 1, 3));
        assert!(ask(&code, CHARACTER, READ, 136, 17));
        assert!(ask(&code, BLOCK, MKNOD, 8, 0) && !ask(&code, BLOCK, READ, 8, 0));
        assert!(!ask(&code, CHARACTER, READ, 1, 1));
    }

    #[test]
    fn on_v1_a_rule_is_a_line() {
        let list = rules(json!([
            {"allow": false, "access": "rwm"},
            {"allow": true, "type": "c", "major": 10, "minor": 229, "access": "rw"},
            {"allow": true, "type": "b", "major": 8, "access": "r"}
        ]));
        let lines: Vec<_> = list.iter().map(line).collect();
        assert_eq!(lines, ["a", "c 10:229 rw", "b 8:* r"]);
        assert_eq!(line(&usual()[0]), "c *:* m");
    }

    #[test]
    fn rules_that_make_no_sense_are_refused() {
        for device in [json!({"allow": true, "access": "x"}), json!({"allow": true, "type": "p"})] {
            let device: LinuxDeviceCgroup = serde_json::from_value(device).unwrap();
            assert!(rule(&device).is_err());
        }
    }
}
