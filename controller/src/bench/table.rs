//! Markdown tables that can be read as they are, too.

/// A table whose columns stand below each other; the first is text, the others are numbers.
pub(super) fn markdown(table: &[Vec<String>]) -> String {
    let columns = table.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = table.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let mut text = String::new();
    for (number, row) in table.iter().enumerate() {
        for (column, cell) in row.iter().enumerate() {
            let space = " ".repeat(width(column) - cell.chars().count());
            text += &if column == 0 { format!("| {cell}{space} ") } else { format!("| {space}{cell} ") };
        }
        text += "|\n";
        if number == 0 {
            for column in 0..columns {
                let dashes = "-".repeat(width(column) + usize::from(column == 0));
                text += &if column == 0 { format!("|-{dashes}") } else { format!("|-{dashes}:") };
            }
            text += "|\n";
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stands_left_and_numbers_right() {
        let row = |words: [&str; 2]| words.map(str::to_owned).to_vec();
        let text = markdown(&[row(["way", "ms"]), row(["`é`", "10.5"]), row(["longer", "1"])]);
        assert_eq!(text, "| way    |   ms |\n|--------|-----:|\n| `é`    | 10.5 |\n| longer |    1 |\n");
        assert_eq!(markdown(&[]), "");
    }
}
