//! Names of vendors, classes and devices, as the CDI specification spells them.

/// `vendor/class`, split and checked.
pub(super) fn kind(text: &str) -> Result<(&str, &str), String> {
    let (vendor, class) = text.split_once('/').ok_or_else(|| format!("kind {text:?} is not VENDOR/CLASS"))?;
    check("vendor", vendor, first_letter, "_-.")?;
    check("class", class, first_letter, "_-.")?;
    Ok((vendor, class))
}

/// `vendor/class=name`, split into kind and name and checked.
pub(super) fn qualified(text: &str) -> Result<(&str, &str), String> {
    let (kind_text, name) = text.split_once('=').ok_or("it has no =NAME")?;
    kind(kind_text)?;
    device(name)?;
    Ok((kind_text, name))
}

/// The name of one device.
pub(super) fn device(name: &str) -> Result<(), String> {
    check("device name", name, char::is_alphanumeric, "_-.:")
}

fn first_letter(letter: char) -> bool {
    letter.is_ascii_alphabetic()
}

/// Letters and digits with some signs between them, beginning as `first` wants.
fn check(what: &str, name: &str, first: impl Fn(char) -> bool, between: &str) -> Result<(), String> {
    let mut letters = name.chars();
    let begins = letters.next().is_some_and(|letter| letter.is_ascii() && first(letter));
    let ends = name.chars().last().is_some_and(|letter| letter.is_ascii_alphanumeric());
    let within = letters.all(|letter| letter.is_ascii_alphanumeric() || between.contains(letter));
    if begins && ends && within { Ok(()) } else { Err(format!("{what} {name:?} is not allowed")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_specification() {
        for good in ["nvidia.com/gpu=0", "nvidia.com/gpu=all", "vendor.com/net.dev=a:b_c-d.e", "v/c=GPU-1b2c"]
        {
            assert!(qualified(good).is_ok(), "{good}");
        }
        for bad in [
            "gpu",
            "nvidia.com=0",
            "nvidia.com/gpu",
            "/gpu=0",
            "1v/gpu=0",
            "v/gpu=",
            "v/gpu=-a",
            "v/gpu=a-",
            "v/gpu=ä",
            "v/../x=0",
            "v/g u=0",
        ] {
            assert!(qualified(bad).is_err(), "{bad}");
        }
    }
}
