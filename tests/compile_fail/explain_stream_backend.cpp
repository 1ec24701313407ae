// EXPECT: backend: its execution is host, and this needs one that is ordered on streams
// EXPECT: backend: a stream backend needs a type `stream`, a handle that can be copied
// EXPECT: backend: a stream backend needs enqueue\(const collective_request&, stream\)
// EXPECT: backend: a stream backend needs check\(\)
// EXPECT: backend: a stream backend needs control\(\), returning a reference to a host backend over the same ranks
#include <gradweave/backend/stream_concept.hpp>
#include <gradweave/testing/archetypes.hpp>

static_assert(gradweave::explain_stream_backend<gradweave::testing::host_backend_archetype>());
