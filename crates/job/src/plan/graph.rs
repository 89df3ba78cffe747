//! What may run when: the dependency graph of a plan.

use std::collections::BTreeSet;

use super::Plan;

/// What depends on what. References only point back, so there are no cycles.
#[derive(Debug, Clone)]
pub struct Graph {
    dependencies: Vec<BTreeSet<u32>>,
    dependents: Vec<Vec<u32>>,
}

impl Graph {
    pub(super) fn of(plan: &Plan) -> Self {
        let mut dependents = vec![Vec::new(); plan.steps.len()];
        let dependencies: Vec<BTreeSet<u32>> = plan
            .steps
            .iter()
            .map(|step| {
                let mut found = BTreeSet::new();
                step.input.dependencies(&mut found);
                found
            })
            .collect();
        for (step, needs) in (0u32..).zip(&dependencies) {
            needs.iter().for_each(|need| dependents[*need as usize].push(step));
        }
        Graph { dependencies, dependents }
    }

    /// The steps that one needs.
    pub fn dependencies(&self, step: u32) -> &BTreeSet<u32> {
        &self.dependencies[step as usize]
    }

    /// The steps that need one.
    pub fn dependents(&self, step: u32) -> &[u32] {
        &self.dependents[step as usize]
    }

    /// The steps that need no other.
    pub fn first_steps(&self) -> Vec<u32> {
        let is_free = |(_, needs): &(u32, &BTreeSet<u32>)| needs.is_empty();
        (0u32..).zip(&self.dependencies).filter(is_free).map(|(step, _)| step).collect()
    }

    /// The steps that can start because `step` has ended, given which have ended. Costs what the
    /// step's dependents need, however many steps there are.
    pub fn next_steps(&self, step: u32, has_ended: impl Fn(u32) -> bool) -> Vec<u32> {
        let is_ready = |next: &&u32| self.dependencies(**next).iter().all(|need| has_ended(*need));
        self.dependents(step).iter().filter(is_ready).copied().collect()
    }

    /// Steps that could run together, wave after wave.
    pub fn waves(&self) -> Vec<Vec<u32>> {
        let mut waves: Vec<Vec<u32>> = Vec::new();
        for (step, depth) in (0u32..).zip(self.depths()) {
            if waves.len() <= depth {
                waves.resize(depth + 1, Vec::new());
            }
            waves[depth].push(step);
        }
        waves
    }

    /// A longest chain of steps that wait for each other.
    pub fn critical_path(&self) -> Vec<u32> {
        let depths = self.depths();
        let last = (0u32..).zip(&depths).max_by_key(|(step, depth)| (**depth, u32::MAX - step));
        let Some((mut step, _)) = last else { return Vec::new() };
        let mut path = vec![step];
        while let Some(need) = self.deepest_dependency(step, &depths) {
            path.push(need);
            step = need;
        }
        path.reverse();
        path
    }

    fn deepest_dependency(&self, step: u32, depths: &[usize]) -> Option<u32> {
        let wanted = depths[step as usize].checked_sub(1)?;
        self.dependencies(step).iter().copied().find(|need| depths[*need as usize] == wanted)
    }

    /// For each step, how many others must end before it, one after the other.
    fn depths(&self) -> Vec<usize> {
        let mut depths: Vec<usize> = Vec::with_capacity(self.dependencies.len());
        for needs in &self.dependencies {
            let deepest = needs.iter().map(|need| depths[*need as usize] + 1).max();
            depths.push(deepest.unwrap_or(0));
        }
        depths
    }
}
