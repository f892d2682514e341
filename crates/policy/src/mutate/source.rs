//! Mutation policies as they are written, ours and the API server's own.

use sallyport_api::{
    AdmissionPatchType, MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingAdmissionPolicySpec,
    Mutation, MutationPolicy, MutationPolicySpec, PatchType,
};

use crate::error::DefinitionError;
use crate::family::Family;
use crate::purpose::Purpose;
use crate::set::admission_policy::{Bindings, check_binding, check_condition_names, check_policy};
use crate::set::binding::{self, BindingSource};

/// A policy as written, with what puts it in force.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MutationSource {
    pub(crate) family: Family,
    pub(crate) spec: MutationPolicySpec,
    pub(crate) bindings: Vec<BindingSource>,
}

impl MutationSource {
    fn of_sallyport(spec: MutationPolicySpec) -> Self {
        let binding = BindingSource::of_policy(&[], spec.param_ref.as_ref(), spec.params.as_ref());
        Self { family: Family::Sallyport, spec, bindings: vec![binding] }
    }

    fn of_kubernetes(spec: MutatingAdmissionPolicySpec, bindings: Vec<BindingSource>) -> Self {
        Self { family: Family::Kubernetes, spec: mutation_spec(spec), bindings }
    }

    /// Checks what no schema and no expression says.
    pub(crate) fn check(&self) -> Result<(), DefinitionError> {
        match self.family {
            Family::Sallyport => self.check_as_sallyport(),
            Family::Kubernetes => self.check_as_kubernetes(),
        }
    }

    fn check_as_sallyport(&self) -> Result<(), DefinitionError> {
        binding::check_params(self.spec.param_kind.as_ref(), self.spec.param_ref.as_ref())
    }

    /// What the API server demands of a `MutatingAdmissionPolicy` and its bindings.
    fn check_as_kubernetes(&self) -> Result<(), DefinitionError> {
        let Self { spec, bindings, .. } = self;
        let purpose = Purpose::Mutation;
        check_policy(spec.param_kind.as_ref(), &spec.match_constraints, &spec.variables, purpose)?;
        check_condition_names(spec.match_conditions.iter().map(|condition| condition.name.as_str()))?;
        for binding in bindings {
            check_binding(binding, purpose).map_err(|error| binding.locate_error(error))?;
        }
        Ok(())
    }
}

/// Our policies and the API server's own, by name.
pub(crate) fn sources(
    policies: Vec<MutationPolicy>,
    admission_policies: Vec<MutatingAdmissionPolicy>,
    bindings: Vec<MutatingAdmissionPolicyBinding>,
) -> impl Iterator<Item = (Option<String>, MutationSource)> {
    let ours =
        policies.into_iter().map(|policy| (policy.metadata.name, MutationSource::of_sallyport(policy.spec)));
    let mut bindings: Bindings = bindings
        .into_iter()
        .map(|binding| {
            let source = BindingSource {
                name: Some(binding.metadata.name.unwrap_or_default()),
                constraints: binding.spec.match_resources,
                actions: Vec::new(),
                param_ref: binding.spec.param_ref,
                params: None,
            };
            (binding.spec.policy_name, source)
        })
        .collect();
    ours.chain(admission_policies.into_iter().map(move |policy| {
        let bindings = bindings.take(policy.metadata.name.as_deref());
        (policy.metadata.name, MutationSource::of_kubernetes(policy.spec, bindings))
    }))
}

fn mutation_spec(spec: MutatingAdmissionPolicySpec) -> MutationPolicySpec {
    let mutations = spec.mutations.into_iter().map(|mutation| Mutation {
        patch_type: Some(match mutation.patch_type {
            AdmissionPatchType::ApplyConfiguration => PatchType::ApplyConfiguration,
            AdmissionPatchType::JSONPatch => PatchType::JSONPatch,
        }),
        json_patch: mutation.json_patch,
        apply_configuration: mutation.apply_configuration,
        ..Mutation::default()
    });
    MutationPolicySpec {
        param_kind: spec.param_kind,
        match_constraints: spec.match_constraints,
        match_conditions: spec.match_conditions,
        variables: spec.variables,
        mutations: mutations.collect(),
        failure_policy: spec.failure_policy,
        reinvocation_policy: spec.reinvocation_policy,
        ..MutationPolicySpec::default()
    }
}
