"""A case's call as upstream's callers write it: its arguments by upstream's names, outputs where upstream wants them given."""

import re

import numpy as np

import dodona
from dodona import compat
from dodona._arrays import numpy_dtype

LAUNCH = {"workspace": None, "workspace_buffer": None, "device": "cpu", "cublas_handle": 0, "enable_pdl": False, "cuda_stream": 0}


class UpstreamCall:
    """`convert(array, dtype)` makes what is handed over (as it is, where there is none), `type_of(dtype)` a type."""

    def __init__(self, package, name, case, convert=None, type_of=lambda dtype: dtype, operator=False):
        found = compat._package(package)
        self.adapter = found.torch_adapter(name) if operator else found.adapter(name)
        self.case, self.convert = case, convert
        attributes = {spec["name"]: spec for spec in dodona.schema(case.op)["attributes"]}
        self.defaults = {name: type_of(spec["default"]) if spec["kind"] == "dtype" else spec["default"] for name, spec in attributes.items()}
        for tensor in dodona.schema(case.op)["tensors"]:
            if attributes.get(tensor["name"], {}).get("kind") == "bool":
                self.defaults.pop(tensor["name"])  # an attribute of a tensor's name asks for it
        self.ours, self.asked = {}, set()
        for field, value in case.arguments().items():
            if field not in case.inputs and field not in self.defaults:
                self.asked.add(field)
                continue
            if field in case.inputs:
                value = self._converted(field, value)
            elif attributes[field]["kind"] == "dtype":
                value = type_of(value)
            self.ours[field] = value
        self.wanted = case.run()
        self.arguments = {}
        # A schema has no place for what is ours alone.
        self.said = True
        for theirs, output in self.adapter.line.writes.items():
            self.ours[output] = self.ours[self.adapter.fields[self.adapter.names[theirs]]]
        for theirs, parameter in self.adapter.signature.parameters.items():
            if operator and parameter.kind is parameter.KEYWORD_ONLY:
                field = self.adapter.fields.get(theirs)
                self.said = self.said and field not in case.inputs and case.attrs.get(field, parameter.default) == parameter.default
            else:
                self._give(theirs, parameter.default is parameter.empty)

    def _converted(self, field, value):
        if self.convert is None:
            return value
        return self.convert(value.array if isinstance(value, dodona.Typed) else value, self.case.dtypes[field])

    def _output(self, field):
        """Memory for an output; junk lies in it."""
        spec = next(spec for spec in dodona.schema(self.case.op)["tensors"] if spec["name"] == field)
        attributes = {attribute["name"]: attribute["default"] for attribute in dodona.schema(self.case.op)["attributes"]}
        kind = self.case.dtypes.get(spec.get("same_dtype_as")) or {**attributes, **self.case.attrs}.get(spec.get("dtype_attr"))
        array = np.full(self.wanted[field].nbytes, 0x2B, np.uint8).view(self.wanted[field].dtype).reshape(self.wanted[field].shape)
        kind = kind or next((name for name in spec["dtypes"] if numpy_dtype(name) == array.dtype), spec["dtypes"][0] if spec["dtypes"] else "f32")
        if self.convert is None:
            typed = isinstance(self.ours.get(spec.get("same_dtype_as")), dodona.Typed)
            self.ours[field] = dodona.as_dtype(array, kind) if typed else array
        else:
            self.ours[field] = self.convert(array, kind)
        return self.ours[field]

    def _give(self, theirs, required):
        adapter = self.adapter
        field = adapter.fields.get(adapter.names.get(theirs, theirs))
        special = getattr(self, f"give_{theirs}", None)
        if special is not None and theirs in adapter.line.takes:
            self.arguments[theirs] = special()
        elif field in self.wanted and (required or field in self.asked):
            self.arguments[theirs] = self.ours[field] if field in self.case.inputs else self._output(field)
        elif field in self.ours and theirs not in LAUNCH:
            self.arguments[theirs] = self.ours[field]
        elif theirs in ("workspace", "workspace_buffer"):
            self.arguments[theirs] = self.convert(np.zeros(16, np.int8), "i8") if self.convert else None
        elif required:
            self.arguments[theirs] = LAUNCH.get(theirs, self.defaults.get(field))
        if adapter.signature.parameters[theirs].annotation == "Tensor[]":
            self.arguments[theirs] = list(self.arguments[theirs])

    def _each(self, name):
        return self.ours[name] if name in self.case.inputs else None

    def _one(self, name):
        return {"top_k": 0}.get(name, 0.0) if name in self.case.inputs else self.case.attrs[name]

    def give_maybe_top_k_arr(self):
        return self._each("top_k")

    def give_maybe_top_p_arr(self):
        return self._each("top_p")

    def give_maybe_min_p_arr(self):
        return self._each("min_p")

    def give_top_k_val(self):
        return self._one("top_k")

    def give_top_p_val(self):
        return self._one("top_p")

    def give_min_p_val(self):
        return self._one("min_p")

    def give_topk_ids(self):
        return self.ours["given_ids"], self.ours["given_weights"]

    def give_generator(self):
        return None

    def give_gen(self):
        return None

    def give_check_nan(self):
        return False

    def give_params(self):
        names = ("ab_strides", "c_strides", "problem_sizes", "expert_offsets", "blockscale_offsets")
        return {name: self.ours.get(name) for name in names}

    def give_output_tensor_shape(self):
        return self.wanted["output_tensor"].shape

    def give_fused_set_kv_buffer_arg(self):
        from dodona.compat.sgl_kernel import FusedSetKVBufferArg

        if "value" not in self.ours:
            return None
        value, k, v, loc = (self.ours.pop(name) for name in ("value", "k_buffer", "v_buffer", "cache_loc"))
        self.ours.update(k_buffer=k, v_buffer=v)
        return FusedSetKVBufferArg(value, k, v, None, None, loc)

    def give_q(self):
        return self._heads("query")

    def give_k(self):
        return self._heads("key")

    def _heads(self, name):
        """A copy, for the operator reads from other memory than it writes."""
        size = self.ours.get("head_size", self.defaults["head_size"])
        self.ours[name] = self.ours[name].view(len(self.ours[name]), -1, size)
        rows = self.ours[name].clone()
        self.ours[name].zero_()
        return rows

    def give_sfLayout(self):
        swizzled, eights = self.ours.get("is_sf_swizzled_layout", True), self.ours.get("is_sf_8x4_layout", False)
        return "layout_linear" if not swizzled else "layout_8x4" if eights else "layout_128x4"

    def give_interleave(self):
        return not self.ours.get("is_neox", True)

    def give_output(self):
        return self._output("output")

    def give_output_scale(self):
        rows, columns = self.wanted["output_scales"].shape
        self.ours["output_scales"] = self.convert(np.zeros((rows + 128, columns // 4), np.int32), "i32")
        return self.ours["output_scales"]

    def give_mask(self):
        return None

    def give_quant_scales(self):
        if "fc1_dequant" not in self.ours and "fc1_weight_scale" not in self.ours:
            return None
        one = self.convert(np.ones(1, np.float32), "f32") if self.convert else np.ones(1, np.float32)
        if self.ours.get("use_deepseek_fp8_block_scale"):
            names = ("fc1_weight_scale", "fc2_weight_scale")
        elif "fc1_weight_scale" in self.ours:
            names = ("fc1_act_scale", "fc1_weight_scale", "fc1_dequant", "fc2_act_scale", "fc2_weight_scale", "fc2_dequant")
        else:
            names = ("fc1_dequant", "fc2_act_scale", "fc2_dequant", "fc1_input_dequant")
        return [self.ours.get(name, one) for name in names]

    def give_activation_type(self):
        curve, gated = self.ours.get("gate_activation", "silu"), self.ours.get("gated", True)
        step = self.ours.get("limited") == "activated"
        gates = {"silu": 7 if step else 3, "gelu": 4, "gelu_tanh": 8}
        return gates[curve] if gated else {"gelu": 0, "relu": 1, "silu": 2, "relu2": 6, "identity": 9}[curve]

    def give_gated_act_type(self):
        return 0

    def run(self, function):
        """What it returned, and every output by the schema's names."""
        returned = function(**self.arguments)
        specs = dodona.schema(self.case.op)["tensors"]
        outputs = {spec["name"]: self.ours[spec["name"]] for spec in specs if spec["direction"] != "in" and spec["name"] in self.ours}
        if self.adapter.name == "apply_rope_with_cos_sin_cache":  # what the op changes is given back, and stays as it was
            return returned, {**outputs, **dict(zip(("query", "key"), returned))}
        missing = [name for name in self.wanted if name not in outputs]
        values = [] if returned is None else list(returned) if isinstance(returned, (tuple, list)) else [returned]
        if not missing:
            return returned, outputs
        return returned, {**outputs, **dict(zip(missing, values[-len(missing) :]))}


def lines_of(adapter, dialect):
    """The case lines of an adapter's op, with the package's recipe: those that state what the adapter sets, or where there are none, all others with it."""
    op, sets = adapter.op, {f"--attr {name}={str(value).lower()}" for name, value in adapter.line.sets.items()}
    has = any(dialect in spec.get("dialects", {}) for spec in dodona.schema(op)["attributes"])
    routed = "given_ids" in adapter.line.makes  # where it is not an adapter's to make, it is ours beside upstream's arguments
    lines = [line for line in dodona.schema(op)["cases"] if not routed or "--with given_ids" in line]
    stated = [line for line in lines if all(word in line for word in sets)]
    if not stated:
        taken = "|".join(adapter.line.sets)
        others = [re.sub(rf" --attr ({taken})=\S+", "", line) for line in lines if not re.search(rf"--with ({taken})\b", line)]
        stated = [" ".join([line, *sorted(sets)]) for line in others]
    return [f"{op} {line}" + (f" --dialect {dialect}" if has and "--dialect" not in line else "") for line in stated]


def as_the_op_has_it(name, value, wanted):
    """What an adapter returns in another form: with room behind it, or as a view with the groups last."""
    if name == "scaled_fp4_experts_quant":
        return value[: wanted.shape[0]]
    if not name.endswith(("scaled_fp4_grouped_quant", "scaled_fp4_grouped_quantize", "scaled_nvfp4_experts_quantize")):
        return value
    axes = (2, 0, 1) if value.ndim == 3 else (5, 2, 4, 0, 1, 3)
    return (value.permute(axes).contiguous() if hasattr(value, "permute") else np.ascontiguousarray(value.transpose(axes))).reshape(wanted.shape)


def assert_returned(adapter, returned):
    """As many values as upstream gives back."""
    words = adapter.returns
    if adapter.name == "cutlass_fused_moe":  # which says Tensor
        assert type(returned) is list
        return
    if getattr(returned, "__len__", None) and len(returned) == 2 and adapter.name.startswith("trtllm"):
        return  # return_lse, which is ours
    if adapter.name == "nvfp4_quantize" and len(returned) == 3:
        return  # with per_token_activation, which the newer version has
    if words in ("None", "()"):
        assert returned is None
    elif words == "Tensor[]":
        assert type(returned) is list
    elif words == "Tensor":
        assert returned is not None and not isinstance(returned, (tuple, list))
    elif words.lower().startswith("tuple["):
        assert type(returned) is tuple and len(returned) == words.count("Tensor")
    elif words == "int":
        assert isinstance(returned, int)
