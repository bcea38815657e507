// Device collectives of a build without CUDA.
#include "dsf/comm/device_collective.h"

namespace dsf::comm {

Result<std::unique_ptr<DeviceCollective>> open_peer_collective(Communicator& /*bootstrap*/,
                                                               const DeviceCollectiveOptions& /*options*/) {
  return fail(Code::kMissing, "peer exchange", "this build has no CUDA", "build with -DDSF_CUDA=ON", "no_device");
}

}  // namespace dsf::comm
