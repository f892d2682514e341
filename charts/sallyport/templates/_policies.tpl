{{/* Which policies are on, and which doors they need. */}}

{{/* The names of all recipes that the chart packs, as a JSON list: each file is one, so that a new recipe needs no template. */}}
{{- define "sallyport.recipeNames" -}}
{{- $names := list -}}
{{- range $path, $_ := .Files.Glob "files/recipes/*.yaml" -}}
{{- $names = append $names (base $path | trimSuffix ".yaml") -}}
{{- end -}}
{{- $names | sortAlpha | toJson -}}
{{- end -}}

{{/* The files of policies that are on, as a JSON object from a file's name to its text. The user's own may be written as
     an object instead of a text. */}}
{{- define "sallyport.policyFiles" -}}
{{- $files := dict -}}
{{- $names := include "sallyport.recipeNames" . | fromJsonArray -}}
{{- range $name, $recipe := .Values.recipes -}}
{{- if not (has $name $names) -}}
{{- fail (printf "recipes.%s: there is no such recipe; there are %s" $name (join ", " $names)) -}}
{{- end -}}
{{- if $recipe.enabled -}}
{{- $_ := set $files (printf "%s.yaml" $name) ($.Files.Get (printf "files/recipes/%s.yaml" $name)) -}}
{{- end -}}
{{- end -}}
{{- range $file, $text := include "sallyport.ownPolicies" . | fromJson -}}
{{- if hasKey $files $file -}}
{{- fail (printf "policies.%s has the name of a recipe that is on; choose another name or switch the recipe off" $file) -}}
{{- end -}}
{{- $_ := set $files $file $text -}}
{{- end -}}
{{- $files | toJson -}}
{{- end -}}

{{/* The user's own policies, as a JSON object from a file's name to its text. */}}
{{- define "sallyport.ownPolicies" -}}
{{- $files := dict -}}
{{- range $file, $policy := .Values.policies -}}
{{- if and $.Values.registration.promote (eq $file "sallyport-probe.yaml") -}}
{{- fail "policies.sallyport-probe.yaml has the name of what registration.promote adds; choose another name" -}}
{{- end -}}
{{- if not (kindIs "invalid" $policy) -}}
{{- $_ := set $files $file (ternary $policy (toYaml $policy) (kindIs "string" $policy)) -}}
{{- end -}}
{{- end -}}
{{- $files | toJson -}}
{{- end -}}

{{/* The files of the ConfigMap that is no recipe's, as a JSON object: the user's own policies and those by which a promotion
     is proven. The latter ask for no entry, so they are not among the policies that are on. */}}
{{- define "sallyport.policyData" -}}
{{- $files := include "sallyport.ownPolicies" . | fromJson -}}
{{- if .Values.registration.promote -}}
{{- $_ := set $files "sallyport-probe.yaml" (.Files.Get "files/probe.yaml") -}}
{{- end -}}
{{- $files | toJson -}}
{{- end -}}

{{/* Fails above 900 KiB: a ConfigMap holds 1 MiB, and the API server says so only after half of a release is installed.
     Takes a dict: what (for the message), data. */}}
{{- define "sallyport.boundedData" -}}
{{- $bytes := 0 -}}
{{- range $file, $text := .data -}}
{{- $bytes = add $bytes (len $file) (len $text) -}}
{{- end -}}
{{- if gt $bytes 921600 -}}
{{- fail (printf "%s: %d bytes of policies, and 921600 (900 KiB) is the most that fits into a ConfigMap" .what $bytes) -}}
{{- end -}}
data:
{{- range $file, $text := .data }}
  {{- /* The number of spaces is given, as a text may begin with some of its own. */}}
  {{ $file }}: |2
    {{- $text | trimSuffix "\n" | nindent 4 }}
{{- else }} {}
{{- end }}
{{- end -}}

{{/* The policies that are on, as a JSON list of objects: name, side (mutate or validate), failurePolicy, resourceRules.
     Fails on what the backends would not take for a policy. */}}
{{- define "sallyport.policyObjects" -}}
{{- $policies := list -}}
{{- $sides := dict "MutationPolicy" "mutate" "ValidationPolicy" "validate" -}}
{{- $backends := dict "mutate" "mutator" "validate" "validator" -}}
{{- range $file, $text := include "sallyport.policyFiles" . | fromJson -}}
{{- range $index, $part := regexSplit "(?m)^---(?:[ \\t\\r]|$)" $text -1 -}}
{{- $document := $part | trimAll "\n" | fromYaml -}}
{{- $where := printf "policies: document %d of %s" (add1 $index) $file -}}
{{- if hasKey $document "Error" -}}
{{- fail (printf "%s is not a YAML object: %s" $where $document.Error) -}}
{{- end -}}
{{- if $document -}}
{{- $kind := toString (default "" $document.kind) -}}
{{- $version := toString (default "" $document.apiVersion) -}}
{{- if and (hasKey $sides $kind) (eq $version "sallyport.dev/v1alpha1") -}}
{{- $side := get $sides $kind -}}
{{- $backend := get $backends $side -}}
{{- if not (get $.Values $backend).enabled -}}
{{- fail (printf "%s is a %s, but %s.enabled is false" $where $kind $backend) -}}
{{- end -}}
{{- $spec := default dict $document.spec -}}
{{- $constraints := dict -}}
{{- if kindIs "map" $spec -}}
{{- $constraints = default dict $spec.matchConstraints -}}
{{- end -}}
{{- if not (and (kindIs "map" $spec) (kindIs "map" $document.metadata) (kindIs "map" $constraints)) -}}
{{- fail (printf "%s: metadata, spec and spec.matchConstraints have to be objects" $where) -}}
{{- end -}}
{{- $failurePolicy := default "Fail" $spec.failurePolicy -}}
{{- if not (has $failurePolicy (list "Fail" "Ignore")) -}}
{{- fail (printf "%s: spec.failurePolicy is %v, neither Fail nor Ignore" $where $failurePolicy) -}}
{{- end -}}
{{- $rules := default list $constraints.resourceRules -}}
{{- $areRules := kindIs "slice" $rules -}}
{{- if $areRules -}}
{{- range $rules -}}
{{- if not (and (kindIs "map" .) (kindIs "slice" .apiGroups) (kindIs "slice" .resources) (kindIs "slice" (default list .operations))) -}}
{{- $areRules = false -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $areRules -}}
{{- fail (printf "%s: spec.matchConstraints.resourceRules has to be a list of objects with lists" $where) -}}
{{- end -}}
{{- $policy := dict "name" (toString $document.metadata.name) "side" $side "failurePolicy" $failurePolicy "resourceRules" $rules -}}
{{- $policies = append $policies $policy -}}
{{- else if not (and (eq $kind "Namespace") (eq $version "v1")) -}}
{{- fail (printf "%s is kind %q of %q; known are MutationPolicy and ValidationPolicy of sallyport.dev/v1alpha1, and Namespace of v1" $where $kind $version) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $policies | toJson -}}
{{- end -}}

{{/* The doors that the policies need, as a JSON list of "<door>/<failurePolicy>": a door without policies has no entry. */}}
{{- define "sallyport.doors" -}}
{{- $doors := list -}}
{{- range include "sallyport.policyObjects" . | fromJsonArray -}}
{{- $doors = append $doors (printf "%s/%s" .side .failurePolicy) -}}
{{- end -}}
{{- $doors | uniq | sortAlpha | toJson -}}
{{- end -}}

{{/* What policies ask for and no rule of the registration sends, as a JSON list of texts: they have no effect there. */}}
{{- define "sallyport.unreviewed" -}}
{{- $texts := list -}}
{{- $defaults := dict "mutate" (list "CREATE") "validate" (list "CREATE" "UPDATE") -}}
{{- range $policy := include "sallyport.policyObjects" . | fromJsonArray -}}
{{- range $wanted := $policy.resourceRules -}}
{{- range $group := $wanted.apiGroups -}}
{{- range $resource := $wanted.resources -}}
{{- $wantedName := splitList "/" $resource | first -}}
{{- $wantedSubresource := trimPrefix $wantedName $resource -}}
{{- range $operation := default (get $defaults $policy.side) $wanted.operations -}}
{{- $sent := false -}}
{{- range $rule := (get $.Values.registration $policy.side).rules -}}
{{- if and (or (has "*" $rule.apiGroups) (has $group $rule.apiGroups)) (or (has "*" $rule.operations) (has $operation $rule.operations)) -}}
{{- range $rule.resources -}}
{{- /* As Kubernetes reads them: without a slash no subresource is meant, and a/* is a itself, too. */ -}}
{{- $name := splitList "/" . | first -}}
{{- $subresource := trimPrefix $name . -}}
{{- if and (has $name (list "*" $wantedName)) (has $subresource (list "/*" $wantedSubresource)) -}}
{{- $sent = true -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $sent -}}
{{- $texts = append $texts (printf "%s: %s of %s" $policy.name $operation (ternary $resource (printf "%s.%s" $resource $group) (eq $group ""))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $texts | uniq | toJson -}}
{{- end -}}
