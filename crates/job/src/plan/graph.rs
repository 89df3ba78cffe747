//! The dependency graph of a plan: which steps must end before another can start.

use std::collections::BTreeSet;

use super::Plan;

/// The dependencies between the steps. A step refers only to earlier steps, so there are no cycles.
#[derive(Debug, Clone)]
pub struct Graph {
    dependencies: Vec<BTreeSet<u32>>,
    dependents: Vec<Vec<u32>>,
}

impl Graph {
    pub(super) fn from_plan(plan: &Plan) -> Self {
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

    /// The steps that `step` depends on.
    pub fn dependencies(&self, step: u32) -> &BTreeSet<u32> {
        &self.dependencies[step as usize]
    }

    /// The steps that depend on `step`.
    pub fn dependents(&self, step: u32) -> &[u32] {
        &self.dependents[step as usize]
    }

    /// The steps that depend on no other.
    pub fn first_steps(&self) -> Vec<u32> {
        let is_free = |(_, needs): &(u32, &BTreeSet<u32>)| needs.is_empty();
        (0u32..).zip(&self.dependencies).filter(is_free).map(|(step, _)| step).collect()
    }

    /// The steps that can start because `step` has ended; `has_ended` says which steps have ended.
    /// The cost depends on the dependents of `step`, not on the total number of steps.
    pub fn next_steps(&self, step: u32, has_ended: impl Fn(u32) -> bool) -> Vec<u32> {
        let is_ready = |next: &&u32| self.dependencies(**next).iter().all(|need| has_ended(*need));
        self.dependents(step).iter().filter(is_ready).copied().collect()
    }

    /// The steps grouped into waves: those of one wave depend only on earlier waves and can run
    /// concurrently.
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

    /// A longest chain of steps in which each depends on the one before it.
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

    /// For each step, the length of the longest chain of dependencies before it.
    fn depths(&self) -> Vec<usize> {
        let mut depths: Vec<usize> = Vec::with_capacity(self.dependencies.len());
        for needs in &self.dependencies {
            let deepest = needs.iter().map(|need| depths[*need as usize] + 1).max();
            depths.push(deepest.unwrap_or(0));
        }
        depths
    }
}
