//! Changes to a JSON document that leave most of it valid: bytes flipped at random hardly ever get past a parser.
//! Deterministic, so that a seed repeats a case.

use serde_json::{Map, Number, Value};

/// Strings with a meaning to some decoder, or of an awkward kind.
const STRINGS: [&str; 40] = [
    "",
    "/",
    ".",
    "..",
    "/..",
    "a/../b",
    "/proc",
    "/proc/self/attr",
    "/dev",
    "rootfs",
    "\0",
    "a\nb\u{1b}[2J",
    "\u{202e}ä",
    "bind",
    "rbind",
    "tmpfs",
    "tmpcopyup",
    "ro",
    "size=0",
    "size=17179869184g",
    "size=50%",
    "mode=700,size=9g",
    "nr_blocks=99999999",
    "private",
    "rshared",
    "CAP_SYS_ADMIN",
    "RLIMIT_NOFILE",
    "SCMP_ACT_ALLOW",
    "SCMP_ACT_ERRNO",
    "SCMP_CMP_MASKED_EQ",
    "user",
    "mount",
    "c",
    "rwm",
    "A=1",
    "=",
    "0-4294967295",
    "cgroup.procs",
    "1.2.0",
    "vendor.com/class",
];
const INTEGERS: [i64; 12] =
    [0, 1, -1, 2, 7, 255, 65_536, 0x7fff_ffff, 0xffff_ffff, 0x1_0000_0000, i64::MAX, i64::MIN];

/// xorshift64*.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(high).unwrap_or_default() % limit.max(1)
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    fn string(&mut self) -> String {
        match self.below(16) {
            0 => "x".repeat(300),
            1 => format!("/{}", "y/".repeat(200)),
            _ => (*self.pick(&STRINGS)).to_owned(),
        }
    }

    fn value(&mut self) -> Value {
        match self.below(8) {
            0 => Value::Null,
            1 => Value::Bool(self.below(2) == 0),
            2 => Value::Array(Vec::new()),
            3 => Value::Object(Map::new()),
            4 => u64::MAX.into(),
            5 => Number::from_f64(0.5).map_or(Value::Null, Value::Number),
            6 => (*self.pick(&INTEGERS)).into(),
            _ => self.string().into(),
        }
    }
}

/// The document with some changes; bytes that are no JSON are changed as bytes.
pub fn mutate(data: &[u8], seed: u64) -> Vec<u8> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let Ok(mut document) = serde_json::from_slice::<Value>(data) else {
        return bytes(data.to_vec(), &mut dice);
    };
    for _ in 0..=dice.below(4) {
        let other = at(&mut document, 0, &mut dice).clone();
        change(at(&mut document, 0, &mut dice), other, &mut dice);
    }
    let text = document.to_string().into_bytes();
    if dice.below(16) == 0 { bytes(text, &mut dice) } else { text }
}

/// A place in the document, rather deep in it than near its root.
fn at<'a>(value: &'a mut Value, depth: usize, dice: &mut Dice) -> &'a mut Value {
    let inside = match value {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    };
    if inside == 0 || dice.below(64) < depth * 4 {
        return value;
    }
    let chosen = dice.below(inside);
    let next = match value {
        Value::Array(list) => list.get_mut(chosen),
        Value::Object(map) => map.values_mut().nth(chosen),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    };
    match next {
        Some(next) => at(next, depth + 1, dice),
        None => unreachable!("chosen among those inside"),
    }
}

fn change(place: &mut Value, other: Value, dice: &mut Dice) {
    match (place, dice.below(4)) {
        (Value::Array(list), 0) if !list.is_empty() => {
            let (from, to) = (dice.below(list.len()), dice.below(list.len()));
            let copy = list[from].clone();
            list.insert(to, copy);
        }
        (Value::Array(list), 1) if !list.is_empty() => {
            let gone = dice.below(list.len());
            list.remove(gone);
        }
        (Value::Array(list), 2) => list.push(if dice.below(2) == 0 { other } else { dice.value() }),
        (Value::Object(map), 0) if !map.is_empty() => {
            let gone = map.keys().nth(dice.below(map.len())).cloned().unwrap_or_default();
            map.remove(&gone);
        }
        (Value::Object(map), 1) if !map.is_empty() => {
            let key = map.keys().nth(dice.below(map.len())).cloned().unwrap_or_default();
            map.insert(key, if dice.below(2) == 0 { other } else { dice.value() });
        }
        (Value::Object(map), 2) => {
            map.insert(dice.string(), dice.value());
        }
        (Value::String(text), 0) => text.push_str(&dice.string()),
        (Value::String(text), 1) => *text = dice.string(),
        (Value::Number(number), 0 | 1) => *number = (*dice.pick(&INTEGERS)).into(),
        (place, 3) => *place = other,
        (place, _) => *place = dice.value(),
    }
}

fn bytes(mut data: Vec<u8>, dice: &mut Dice) -> Vec<u8> {
    for _ in 0..=dice.below(4) {
        let place = dice.below(data.len());
        match dice.below(4) {
            0 if !data.is_empty() => drop(data.remove(place)),
            1 if !data.is_empty() => data[place] ^= 1 << dice.below(8),
            2 => {
                let text = dice.string();
                data.splice(place..place, text.into_bytes());
            }
            _ => data.truncate(data.len().saturating_sub(dice.below(8))),
        }
    }
    data
}
