"""Train a small classifier in a loop of one's own with Accelerate, without privacy."""

import torch
from accelerate import Accelerator
from torch import nn

torch.manual_seed(0)
inputs = torch.randn(800, 10)
labels = (inputs[:, 0] > inputs[:, 1]).long()
data = torch.utils.data.TensorDataset(inputs[:600], labels[:600])

accelerator = Accelerator()
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=50)
model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)

loader = accelerator.prepare(torch.utils.data.DataLoader(data, batch_size=60, shuffle=True))
for batch in (batch for _ in range(5) for batch in loader):
    accelerator.backward(nn.functional.cross_entropy(model(batch[0]), batch[1]))
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()

with torch.no_grad():
    correct = (accelerator.unwrap_model(model).cpu()(inputs[600:]).argmax(1) == labels[600:]).float().mean()
print(f"{correct:.0%} of the others correct")
