// EXPECT: device_kernels: it must be movable
// EXPECT: device_kernels: add a type `stream`, a handle that can be copied
// EXPECT: device_kernels: prepare\(span<const extent>, element_kind\) must be const and return `extent_table`
// EXPECT: device_kernels: gather\(stream, extent_table&, byte\* packed\) must be const
// EXPECT: device_kernels: scatter\(stream, extent_table&, const byte\* packed, scatter_summary\*\) must be const
// EXPECT: device_kernels: scale\(stream, const scale_request&\) must be const
// EXPECT: device_kernels: encode\(stream, const encode_request&\) must be const
// EXPECT: device_kernels: sum\(stream, const sum_request&\) must be const
// EXPECT: device_kernels: write_record\(stream, const record_request&\) must be const
// EXPECT: device_kernels: judge_records\(stream, const judge_request&\) must be const
#include <gradweave/device/concept.hpp>

struct nothing {
  nothing(const nothing&) = delete;
};

static_assert(gradweave::explain_device_kernels<nothing>());
