//! Columns for people.

/// One cell; its colour does not count for its width.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    colour: Option<&'static str>,
}

impl Cell {
    /// A cell in an ANSI colour.
    pub(crate) fn coloured(text: impl Into<String>, colour: Option<&'static str>) -> Self {
        Self {
            text: text.into(),
            colour,
        }
    }

    /// The text in its colour.
    pub(crate) fn render(&self) -> String {
        match self.colour {
            Some(code) => format!("\x1b[{code}m{}\x1b[0m", self.text),
            None => self.text.clone(),
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self {
            text: text.into(),
            colour: None,
        }
    }
}

/// A table: headers and rows. A column nobody has anything for is left out.
#[derive(Debug)]
pub(crate) struct Table {
    headers: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    widths: Vec<usize>,
}

impl Table {
    /// A table without rows.
    pub(crate) fn new(headers: &[&'static str]) -> Self {
        Self {
            headers: headers.to_vec(),
            rows: Vec::new(),
            widths: headers
                .iter()
                .map(|header| header.chars().count())
                .collect(),
        }
    }

    /// Makes columns at least this wide: for a table that goes on, so that what comes later stays below its header.
    pub(crate) fn reserve(mut self, least: &[(&str, usize)]) -> Self {
        for (header, width) in self.headers.iter().zip(&mut self.widths) {
            let wanted = least.iter().find(|(name, _)| name == header);
            *width = wanted.map_or(*width, |(_, least)| (*width).max(*least));
        }
        self
    }

    /// Adds a row; it has as many cells as there are headers.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.headers.len(), "a row fits its headers");
        for (width, cell) in self.widths.iter_mut().zip(&cells) {
            *width = (*width).max(cell.text.chars().count());
        }
        self.rows.push(cells);
    }

    /// The table with its headers, every line after `indent`.
    pub(crate) fn render(&self, indent: &str) -> String {
        let shown = self.shown();
        let mut text = String::new();
        let headers: Vec<Cell> = self
            .headers
            .iter()
            .map(|header| Cell::from(*header))
            .collect();
        self.push(&mut text, &headers, &shown, indent);
        for row in &self.rows {
            self.push(&mut text, row, &shown, indent);
        }
        text
    }

    /// The rows alone, as wide as the table is so far.
    pub(crate) fn render_rows(&self) -> String {
        let shown = vec![true; self.headers.len()];
        let mut text = String::new();
        for row in &self.rows {
            self.push(&mut text, row, &shown, "");
        }
        text
    }

    /// Forgets the rows and keeps the widths, for rows that follow later.
    pub(crate) fn clear_rows(&mut self) {
        self.rows.clear();
    }

    /// How many cells a row has.
    pub(crate) fn columns(&self) -> usize {
        self.headers.len()
    }

    /// The headers alone, as wide as the table is so far.
    pub(crate) fn render_headers(&self) -> String {
        let shown = vec![true; self.headers.len()];
        let headers: Vec<Cell> = self
            .headers
            .iter()
            .map(|header| Cell::from(*header))
            .collect();
        let mut text = String::new();
        self.push(&mut text, &headers, &shown, "");
        text
    }

    fn shown(&self) -> Vec<bool> {
        (0..self.headers.len())
            .map(|column| {
                self.rows.is_empty()
                    || column == 0
                    || self
                        .rows
                        .iter()
                        .any(|row| row.get(column).is_some_and(|cell| !cell.text.is_empty()))
            })
            .collect()
    }

    fn push(&self, text: &mut String, cells: &[Cell], shown: &[bool], indent: &str) {
        let mut line = String::from(indent);
        let mut pending = 0;
        for (column, cell) in cells.iter().enumerate() {
            if !shown[column] {
                continue;
            }
            if !cell.text.is_empty() {
                line.extend(std::iter::repeat_n(' ', pending));
                pending = 0;
                line.push_str(&cell.render());
            }
            pending += self.widths[column].saturating_sub(cell.text.chars().count()) + 3;
        }
        text.push_str(&line);
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_later_stays_below_its_header() {
        let mut table = Table::new(&["NAME", "PHASE"]).reserve(&[("NAME", 8)]);
        table.row(vec!["a/b".into(), "Ready".into()]);
        assert_eq!(table.render(""), "NAME       PHASE\na/b        Ready\n");
        table.clear_rows();
        table.row(vec!["a/longer".into(), "Failed".into()]);
        assert_eq!(table.render_rows(), "a/longer   Failed\n");
    }
}
