//! The macros that go through a list or a map.

use std::sync::Arc;

use crate::error::EvalError;
use crate::functions::Outcome;
use crate::lists;
use crate::machine::{Machine, map_key};
use crate::plan::{Comprehension, Kind};
use crate::value::{Key, List, Text, Val};

/// What is gone through, as pairs: index and item, or key and value.
enum Range<'a> {
    Items(List<'a>, usize),
    Object(serde_json::map::Iter<'a>),
    Map(Arc<crate::value::MapVal<'a>>, usize),
}

impl<'a> Range<'a> {
    fn of(value: &Val<'a>) -> Option<Self> {
        Some(match value {
            Val::JsonMap(map) => Self::Object(map.iter()),
            Val::Map(map) => Self::Map(Arc::clone(map), 0),
            other => Self::Items(other.as_list()?, 0),
        })
    }

    /// Whether the one variable of a macro is the first of the pair.
    fn by_key(&self) -> bool {
        !matches!(self, Self::Items(..))
    }

    fn next(&mut self) -> Option<(Val<'a>, Val<'a>)> {
        match self {
            Self::Items(items, next) => {
                let item = items.get(*next)?;
                let index = Val::size(*next);
                *next += 1;
                Some((index, item))
            }
            Self::Object(entries) => {
                let (key, value) = entries.next()?;
                Some((Val::Str(Text::Borrowed(key)), Val::from_json(value)))
            }
            Self::Map(map, next) => {
                let (key, value) = map.entries.get(*next)?;
                *next += 1;
                Some((key.to_value(), value.clone()))
            }
        }
    }
}

/// What has been gathered.
struct Gathered<'a> {
    items: Vec<Val<'a>>,
    entries: Vec<(Key<'a>, Val<'a>)>,
    holding: usize,
    error: Option<EvalError>,
}

impl<'a> Machine<'_, 'a> {
    pub(crate) fn comprehension(&mut self, comprehension: &Comprehension) -> Outcome<'a> {
        let range = self.evaluate(&comprehension.range)?;
        let Some(mut range) = Range::of(&range) else {
            return Err(EvalError::no_such_overload("@iterate", &[range]));
        };
        let length = self.locals.len();
        let mut gathered = Gathered { items: Vec::new(), entries: Vec::new(), holding: 0, error: None };
        let result = self.go_through(comprehension, &mut range, &mut gathered);
        self.locals.truncate(length);
        match result? {
            Some(settled) => Ok(settled),
            None => finish(comprehension.kind, gathered),
        }
    }

    /// `Some` when the answer is settled before the end.
    fn go_through(
        &mut self,
        comprehension: &Comprehension,
        range: &mut Range<'a>,
        gathered: &mut Gathered<'a>,
    ) -> Result<Option<Val<'a>>, EvalError> {
        let first = self.locals.len();
        let by_key = range.by_key();
        while let Some((key, value)) = range.next() {
            self.meter().tick(1)?;
            self.locals.truncate(first);
            let sorted = (comprehension.kind == Kind::Sorted).then(|| value.clone());
            let map_entry = (comprehension.kind == Kind::Map).then(|| key.clone());
            if comprehension.pair {
                self.locals.extend([key, value]);
            } else {
                self.locals.push(if by_key { key } else { value });
            }
            if let Some(filter) = &comprehension.filter
                && !self.truth("filter", filter)?
            {
                continue;
            }
            match comprehension.kind {
                Kind::All | Kind::Exists => {
                    let decides = comprehension.kind == Kind::Exists;
                    match self.truth("@predicate", &comprehension.body) {
                        Ok(holds) if holds == decides => return Ok(Some(Val::Bool(decides))),
                        Ok(_) => {}
                        Err(error) if error.is_limit() => return Err(error),
                        Err(error) => gathered.error = gathered.error.take().or(Some(error)),
                    }
                }
                Kind::ExistsOne => {
                    if self.truth("@predicate", &comprehension.body)? {
                        gathered.holding += 1;
                    }
                }
                Kind::List => {
                    let item = self.evaluate(&comprehension.body)?;
                    self.meter().produce_items(1)?;
                    gathered.items.push(item);
                }
                Kind::Sorted => {
                    let by = self.evaluate(&comprehension.body)?;
                    self.meter().produce_items(2)?;
                    gathered.items.extend(sorted.into_iter().chain([by]));
                }
                Kind::Map => {
                    let value = self.evaluate(&comprehension.body)?;
                    self.meter().produce_items(2)?;
                    if let Some(key) = map_entry {
                        gathered.entries.push((map_key(&key)?, value.clone()));
                    }
                }
                Kind::MapEntries => {
                    let made = self.evaluate(&comprehension.body)?;
                    self.take_entries(&made, gathered)?;
                }
            }
        }
        if comprehension.kind == Kind::Sorted {
            let items = std::mem::take(&mut gathered.items);
            return lists::sort_pairs(self.meter(), items).map(Some);
        }
        Ok(None)
    }

    fn take_entries(&mut self, made: &Val<'a>, gathered: &mut Gathered<'a>) -> Result<(), EvalError> {
        let mut entries = match Range::of(made) {
            Some(entries) if entries.by_key() => entries,
            _ => return Err(EvalError::no_such_overload("transformMapEntry", std::slice::from_ref(made))),
        };
        while let Some((key, value)) = entries.next() {
            self.meter().tick(1)?;
            self.meter().produce_items(2)?;
            gathered.entries.push((map_key(&key)?, value));
        }
        Ok(())
    }
}

fn finish(kind: Kind, gathered: Gathered<'_>) -> Outcome<'_> {
    match kind {
        Kind::All | Kind::Exists => match gathered.error {
            Some(error) => Err(error),
            None => Ok(Val::Bool(kind == Kind::All)),
        },
        Kind::ExistsOne => Ok(Val::Bool(gathered.holding == 1)),
        Kind::List | Kind::Sorted => Val::list(gathered.items),
        Kind::Map | Kind::MapEntries => Val::map(gathered.entries),
    }
}
