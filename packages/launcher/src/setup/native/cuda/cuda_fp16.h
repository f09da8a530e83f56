// NCCL's header includes this and uses nothing of it.
#pragma once
