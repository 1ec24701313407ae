// EXPECT: transport: rank\(\) and size\(\) must exist and return int
// EXPECT: transport: try_send\(int, span<const byte>\) must return std::size_t
// EXPECT: transport: try_receive\(int, span<byte>\) must return std::size_t
// EXPECT: transport: try_send_control and try_receive_control must exist and return bool
// EXPECT: transport: peer_closed\(int\) must exist and return bool
// EXPECT: transport: abort\(failure\) must return the first failure, aborted\(\) a pointer to it or null
// EXPECT: transport: events\(\) and wait\(seen, deadline\) must exist
// EXPECT: transport: now\(\) must be const and return deadline
// EXPECT: transport: payload_bytes_sent\(\) must exist and return std::uint64_t
// EXPECT: transport: it must be movable
#include <gradweave/transport/concept.hpp>

struct nothing {
  nothing(nothing&&) = delete;
};

static_assert(gradweave::explain_transport<nothing>());
