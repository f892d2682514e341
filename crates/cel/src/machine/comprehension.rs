//! The macros that go through a list or a map.

use sallyport_document::{Entries, Items};

use crate::cost::{LIST, UNIT};
use crate::error::EvalError;
use crate::library::lists;
use crate::machine::state::Machine;
use crate::meter::Meter;
use crate::plan::price::Price;
use crate::plan::{Comprehension, Node};
use crate::syntax::ast::Kind;
use crate::value::{Key, Outcome, Text, Val};

/// Entries of an object whose keys are sorted each time they are gone through, at most.
const MAX_UNSORTED: usize = 32;
/// How often sorting so many goes through each key.
const SORT_PASSES: usize = 5;

/// What is gone through, as pairs: index and item, or key and value.
enum Range<'r, 'a> {
    Json(Items<'a>, usize),
    Items(&'r [Val<'a>], usize),
    Object(Entries<'a>),
    Entries(&'r [(Key<'a>, Val<'a>)], usize),
}

impl<'r, 'a> Range<'r, 'a> {
    fn of(meter: &Meter, value: &'r Val<'a>) -> Result<Option<Self>, EvalError> {
        Ok(Some(match value {
            Val::JsonList(items) => Self::Json(items.iter(), 0),
            Val::List(list) => Self::Items(&list.items, 0),
            Val::JsonMap(map) => {
                // Those that have more are sorted when they are read.
                if map.len() <= MAX_UNSORTED {
                    let keys: usize = map.members().map(|(key, _)| key.len()).sum();
                    meter.count_steps(map.len() as u64)?;
                    meter.work(keys.saturating_mul(SORT_PASSES))?;
                }
                Self::Object(map.entries())
            }
            Val::Map(map) => Self::Entries(&map.entries, 0),
            _ => return Ok(None),
        }))
    }

    /// Whether the one variable of a macro is the first of the pair.
    fn by_key(&self) -> bool {
        matches!(self, Self::Object(_) | Self::Entries(..))
    }

    fn is_at_end(&self) -> bool {
        match self {
            Self::Json(items, _) => items.len() == 0,
            Self::Items(items, next) => *next >= items.len(),
            Self::Object(entries) => entries.len() == 0,
            Self::Entries(entries, next) => *next >= entries.len(),
        }
    }

    fn next(&mut self) -> Option<(Val<'a>, Val<'a>)> {
        let (next, item) = match self {
            Self::Json(items, next) => {
                let item = Val::from_json(items.next()?);
                (next, item)
            }
            Self::Items(items, next) => {
                let item = items.get(*next)?.clone();
                (next, item)
            }
            Self::Object(entries) => {
                let (key, value) = entries.next()?;
                return Some((Val::Str(Text::Borrowed(key)), Val::from_json(value)));
            }
            Self::Entries(entries, next) => {
                let (key, value) = entries.get(*next)?;
                *next += 1;
                return Some((key.to_value(), value.clone()));
            }
        };
        let index = Val::size(*next);
        *next += 1;
        Some((index, item))
    }
}

/// What has been gathered.
struct Gathered<'a> {
    items: Vec<Val<'a>>,
    entries: Vec<(Key<'a>, Val<'a>)>,
    holding: usize,
    error: Option<EvalError>,
}

/// What the API server's loops cost around the bodies: it makes every macro of a general one, with a variable
/// that gathers, a condition and a step.
impl Kind {
    /// The condition, before each step.
    fn condition_cost(self) -> u64 {
        match self {
            Self::All => 2,
            Self::Exists => 3,
            _ => 0,
        }
    }

    /// What is gathered, read at the end.
    fn result_cost(self) -> u64 {
        match self {
            // It is compared with one.
            Self::ExistsOne => 2,
            _ => UNIT,
        }
    }
}

impl<'a> Machine<'_, 'a> {
    #[inline(never)]
    pub(crate) fn comprehension(&mut self, comprehension: &Comprehension) -> Outcome<'a> {
        let mut room = Val::Null;
        let range = self.operand(&comprehension.range, &mut room);
        let sorted = comprehension.kind == Kind::Sorted;
        if sorted {
            // The list gets a name, which is used twice: for its keys and for sorting it by them.
            self.meter().charge(2 * UNIT + if range.is_err() { UNIT } else { 0 })?;
        }
        let ranged = range?;
        let Some(mut range) = Range::of(self.meter(), ranged)? else {
            return Err(EvalError::no_such_overload("@iterate", std::slice::from_ref(ranged)));
        };
        let (length, by_key) = (self.locals.len(), range.by_key());
        let mut gathered = Gathered { items: Vec::new(), entries: Vec::new(), holding: 0, error: None };
        let result = self.go_through(comprehension, &mut range, &mut gathered);
        self.locals.truncate(length);
        let settled = result?;
        self.meter().charge(comprehension.kind.result_cost())?;
        match (settled, gathered.error.take()) {
            (Some(settled), _) => Ok(Val::Bool(settled)),
            (None, Some(error)) => {
                if sorted {
                    self.meter().charge(UNIT)?;
                }
                Err(error)
            }
            (None, None) if sorted && by_key => {
                self.meter().charge(UNIT)?;
                Err(EvalError::no_such_overload("@sortByAssociatedKeys", std::slice::from_ref(ranged)))
            }
            (None, None) if sorted => self.sort(comprehension.price, gathered.items),
            (None, None) => finish(self.meter(), comprehension.kind, gathered),
        }
    }

    /// `Some` when `all` or `exists` is settled before the end. Everything else goes on after an error, as in the
    /// API server, where only what is gathered is lost.
    fn go_through(
        &mut self,
        comprehension: &Comprehension,
        range: &mut Range<'_, 'a>,
        gathered: &mut Gathered<'a>,
    ) -> Result<Option<bool>, EvalError> {
        let first = self.locals.len();
        let by_key = range.by_key();
        let kind = comprehension.kind;
        while let Some((key, value)) = range.next() {
            self.meter().count_steps(1)?;
            self.locals.truncate(first);
            let with = match kind {
                Kind::Sorted => Some(value.clone()),
                Kind::Map => Some(key.clone()),
                _ => None,
            };
            if comprehension.pair {
                self.locals.extend([key, value]);
            } else {
                self.locals.push(if by_key { key } else { value });
            }
            if let Some(filter) = &comprehension.filter {
                match self.truth("filter", filter) {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(error) if error.is_limit() => return Err(error),
                    Err(error) => {
                        gathered.error = Some(error);
                        continue;
                    }
                }
            }
            if matches!(kind, Kind::All | Kind::Exists) {
                self.meter().charge(kind.condition_cost() + UNIT)?;
                match self.truth("@predicate", &comprehension.body) {
                    Ok(holds) if holds == (kind == Kind::Exists) => {
                        if !range.is_at_end() {
                            self.meter().charge(kind.condition_cost())?;
                        }
                        return Ok(Some(holds));
                    }
                    Ok(_) => {}
                    Err(error) if error.is_limit() => return Err(error),
                    Err(error) => gathered.error = gathered.error.take().or(Some(error)),
                }
                continue;
            }
            match self.gather(comprehension, gathered, with) {
                Ok(()) => {}
                Err(error) if error.is_limit() => return Err(error),
                // The predicate comes before what is gathered, so that its last error is the one that stays.
                Err(error) if kind == Kind::ExistsOne => gathered.error = Some(error),
                Err(error) => gathered.error = gathered.error.take().or(Some(error)),
            }
        }
        Ok(None)
    }

    /// One step of what gathers; `with` is the item that is sorted or the key that stays.
    fn gather(
        &mut self,
        comprehension: &Comprehension,
        gathered: &mut Gathered<'a>,
        with: Option<Val<'a>>,
    ) -> Result<(), EvalError> {
        let body = &comprehension.body;
        match comprehension.kind {
            Kind::All | Kind::Exists => {}
            Kind::ExistsOne => {
                if self.truth("@predicate", body)? {
                    self.meter().charge(2 * UNIT)?;
                    gathered.holding += 1;
                }
            }
            Kind::List | Kind::Sorted => {
                // A list of the one item is added to the list so far.
                let made = if matches!(body, Node::Constant(_)) { 0 } else { LIST };
                self.meter().charge(made + 2 * UNIT)?;
                let item = self.evaluate(body)?;
                if gathered.error.is_none() {
                    self.meter().produce_items(1 + usize::from(with.is_some()))?;
                    gathered.items.extend(with.into_iter().chain([item]));
                }
            }
            Kind::Map => {
                self.meter().charge(UNIT)?;
                if gathered.error.is_some() {
                    return Ok(());
                }
                self.meter().charge(2 * UNIT)?;
                let value = self.evaluate(body)?;
                self.meter().produce_items(2)?;
                if let Some(key) = with {
                    gathered.entries.push((Key::to_insert(&key)?, value));
                }
            }
            Kind::MapEntries => {
                self.meter().charge(2 * UNIT)?;
                let made = self.evaluate(body)?;
                self.take_entries(&made, gathered)?;
            }
        }
        Ok(())
    }

    fn sort(&mut self, price: Price, items: Vec<Val<'a>>) -> Outcome<'a> {
        let first = items.get(1).cloned();
        price.charge_sorted(self.meter(), items.len() / 2, first.as_ref())?;
        lists::sort_pairs(self.meter(), items)
    }

    fn take_entries(&mut self, made: &Val<'a>, gathered: &mut Gathered<'a>) -> Result<(), EvalError> {
        let mut entries = match Range::of(self.meter(), made)? {
            Some(entries) if entries.by_key() => entries,
            _ => return Err(EvalError::no_such_overload("transformMapEntry", std::slice::from_ref(made))),
        };
        while let Some((key, value)) = entries.next() {
            self.meter().count_steps(1)?;
            self.meter().produce_items(2)?;
            gathered.entries.push((Key::to_insert(&key)?, value));
        }
        Ok(())
    }
}

fn finish<'a>(meter: &Meter, kind: Kind, gathered: Gathered<'a>) -> Outcome<'a> {
    match kind {
        Kind::All | Kind::Exists => Ok(Val::Bool(kind == Kind::All)),
        Kind::ExistsOne => Ok(Val::Bool(gathered.holding == 1)),
        Kind::List | Kind::Sorted => Val::list(gathered.items),
        Kind::Map | Kind::MapEntries => Val::map(meter, gathered.entries),
    }
}
